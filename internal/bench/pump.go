package bench

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/tidewire/tidewire/websocket"
)

// Answer says what a server sends for a message.
type Answer int

const (
	// NoAnswer: the server sends nothing before the closing handshake.
	NoAnswer Answer = iota
	// CountAnswer: the server sends the decimal count of handled messages from time to time.
	CountAnswer
	// EchoAnswer: the server sends each message back.
	EchoAnswer
)

// PumpConfig describes the load of a Pump.
type PumpConfig struct {
	// URL of the WebSocket.
	URL string
	// TLS is for wss URLs. Defaults to what the system trusts.
	TLS *tls.Config
	// Clients is the number of connections.
	Clients int
	// Messages is the number of messages that each client sends.
	Messages int
	// Payload is the size of a message in bytes, at least MinPayload.
	Payload int
	// Answer says what the server sends back.
	Answer Answer
	// Window is the maximum number of unanswered messages of a connection; 1 is
	// a closed loop. 0 means no limit.
	Window int
	// Rate is messages/s of all connections together, sent at times fixed in
	// advance (open loop): latency counts from these times. 0 means as fast as
	// possible.
	Rate float64
	// Patience is the maximum time without any progress. Defaults to 2 minutes.
	Patience time.Duration
	// Progress is called every two seconds with the number of messages sent and
	// answered, by the goroutine that makes the load: it must be brief.
	Progress func(sent, answered int)
	// Gauge lets other goroutines ask how far the load is. Defaults to none.
	Gauge *Progress
}

// PumpResult is the result of a Pump.
type PumpResult struct {
	Sent     int
	Answered int
	// Unsent is the number of messages that were not sent when the schedule of
	// an open loop ended. They are still sent, but too late.
	Unsent int
	// Closed is the number of connections that completed the closing handshake.
	Closed int
	// FirstFrame is when the first message was given to the kernel, LastClose
	// when the last closing handshake was complete.
	FirstFrame, LastClose time.Time
	// Latency runs from the send (closed loop) or from the due time (open loop)
	// to the answer.
	Latency *Histogram
	// Late is how much later than due messages were given to the kernel, in an
	// open loop. It does not contain those that the server delayed by not
	// reading or not answering.
	Late *Histogram
}

// Pump drives all its connections from one goroutine: there is no hand-over
// between threads, one wait for all sockets, and one shared buffer for frames.
type Pump struct {
	cfg     PumpConfig
	poll    *poller
	conns   []*pumpConn
	byFD    map[int]*pumpConn
	out, in []byte // shared by all connections
	filler  []byte // of every payload
	open    int
	result  PumpResult
	latency recorder
	late    recorder
	start   time.Time
	next    time.Duration // when the next message is due that the server does not delay
	over    bool          // the schedule of an open loop has ended
}

const (
	pumpWrite = 64 << 10 // bytes of frames made for one write
	pumpRead  = 64 << 10

	// scheduleGrace is how much later than due the last message of an open loop
	// may be sent.
	scheduleGrace = 100 * time.Millisecond
)

// pumpConn is one connection. Only Pump's goroutine uses it.
type pumpConn struct {
	rawSocket
	index    int
	frames   *frames
	rest     []byte // frames that the kernel has not accepted yet
	partial  []byte // the part of a frame that has arrived
	sent     int
	answered int
	free     time.Duration   // since then the server has not delayed any message
	sentAt   []time.Duration // ring of send times, by message modulo Window
	closing  bool            // the Close frame is in the buffer
	writing  bool            // the poller reports writability
	done     bool
}

// NewPump opens the connections.
func NewPump(ctx context.Context, cfg PumpConfig) (*Pump, error) {
	if cfg.Payload < MinPayload {
		return nil, fmt.Errorf("payload is %d bytes: want at least %d", cfg.Payload, MinPayload)
	}
	if cfg.Patience == 0 {
		cfg.Patience = 2 * time.Minute
	}
	if cfg.Progress == nil {
		cfg.Progress = func(int, int) {}
	}
	poll, err := newPoller()
	if err != nil {
		return nil, err
	}
	p := &Pump{
		cfg: cfg, poll: poll, byFD: make(map[int]*pumpConn),
		out: make([]byte, 0, pumpWrite+cfg.Payload+websocket.MaxHeader), in: make([]byte, pumpRead),
		filler: AppendPayload(nil, 0, 0, cfg.Payload), latency: newRecorder(), late: newRecorder(),
	}
	op := websocket.OpText
	for i := range cfg.Clients {
		socket, leftover, err := dialRaw(ctx, cfg.URL, cfg.TLS)
		if err != nil {
			p.Close()
			return nil, fmt.Errorf("connect client %d: %w", i+1, err)
		}
		c := &pumpConn{rawSocket: socket, index: i, frames: newFrames(op, i, cfg.Payload), partial: leftover}
		if cfg.Window > 0 {
			c.sentAt = make([]time.Duration, cfg.Window)
		}
		p.conns, p.byFD[c.fd] = append(p.conns, c), c
		if err := poll.add(c.fd); err != nil {
			p.Close()
			return nil, err
		}
	}
	p.open = len(p.conns)
	return p, nil
}

// Close closes the sockets without a closing handshake. After Run there is nothing to close.
func (p *Pump) Close() {
	for _, c := range p.conns {
		if !c.done {
			c.done = true
			c.close()
		}
	}
	p.poll.close()
}

// Run sends everything, waits for the answers and the closing handshakes, and
// returns the result, also with an error.
func (p *Pump) Run(ctx context.Context) (PumpResult, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer p.Close()
	p.start = time.Now()
	p.cfg.Gauge.begin()
	err := p.run(ctx)
	p.result.Sent, p.result.Answered = p.counts()
	p.cfg.Gauge.end(p.counters())
	p.result.Latency, p.result.Late = p.latency.all, p.late.all
	return p.result, err
}

func (p *Pump) run(ctx context.Context) error {
	if err := p.sendAll(); err != nil {
		return err
	}
	lastEvent, lastReport := p.start, p.start
	for p.open > 0 {
		var failed error
		events := 0
		err := p.poll.wait(p.pause(), func(ev event) {
			events++
			c := p.byFD[ev.fd]
			if c.done || failed != nil {
				return
			}
			if ev.readable {
				failed = p.receive(c)
			}
			if ev.writable && !c.done && failed == nil {
				failed = p.send(c)
			}
		})
		if err = errors.Join(err, failed); err != nil {
			return err
		}
		if p.cfg.Rate > 0 {
			if err := p.sendAll(); err != nil {
				return err
			}
		}
		if p.cfg.Gauge.wanted() {
			p.cfg.Gauge.tell(p.counters())
		}
		now := time.Now()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case events > 0:
			lastEvent = now
		case now.Sub(lastEvent) > p.cfg.Patience:
			return fmt.Errorf("nothing happened for %v", p.cfg.Patience)
		}
		if now.Sub(lastReport) > 2*time.Second {
			lastReport = now
			p.report()
		}
	}
	return nil
}

func (p *Pump) report() { p.cfg.Progress(p.counts()) }

func (p *Pump) counts() (sent, answered int) {
	for _, c := range p.conns {
		sent += c.sent
		answered += c.answered
	}
	return sent, answered
}

// counters returns how far the load is. If messages have no answers, they count
// as done when they are sent.
func (p *Pump) counters() Counters {
	sent, answered := p.counts()
	c := Counters{
		Phase: PhaseMeasured, Messages: int64(answered), Missing: int64(sent - answered), Offered: p.cfg.Rate,
		Latency: p.latency.take(), Late: p.late.take(),
	}
	if p.cfg.Answer == NoAnswer {
		c.Messages, c.Missing = int64(sent), 0
	}
	return c
}

// sendAll sends what every connection may send, and computes when the next
// message of an open loop is due.
func (p *Pump) sendAll() error {
	for _, c := range p.conns {
		if err := p.send(c); err != nil {
			return err
		}
	}
	if p.cfg.Rate == 0 {
		return nil
	}
	now := time.Since(p.start)
	p.next = now + idlePause
	for _, c := range p.conns {
		if !p.heldUp(c) && c.sent < p.cfg.Messages {
			p.next = min(p.next, p.due(c, c.sent))
		}
	}
	if last := p.due(p.conns[len(p.conns)-1], p.cfg.Messages-1); !p.over && now > last+scheduleGrace {
		p.over = true
		sent, _ := p.counts()
		p.result.Unsent = p.cfg.Messages*len(p.conns) - sent
	}
	return nil
}

// heldUp reports whether c must wait for the server before it sends more.
func (p *Pump) heldUp(c *pumpConn) bool {
	return len(c.rest) > 0 || p.cfg.Window > 0 && c.sent-c.answered >= p.cfg.Window
}

// idlePause is the longest wait for the sockets.
const idlePause = 100 * time.Millisecond

// pause returns how long to wait for the sockets: until the next message is due.
// It is at least a tenth of a millisecond, and more at a high rate, so that
// messages that become due meanwhile are sent in one write.
func (p *Pump) pause() time.Duration {
	if p.cfg.Rate == 0 {
		return idlePause
	}
	const shortest, longest = 100 * time.Microsecond, time.Millisecond
	together := min(max(time.Duration(p.cfg.Rate)*5, shortest), longest) // in nanoseconds
	return min(max(p.next-time.Since(p.start), together), idlePause)
}

// due returns when message seq of a connection is due, from the start.
func (p *Pump) due(c *pumpConn, seq int) time.Duration {
	nth := float64(seq*len(p.conns) + c.index)
	return time.Duration(nth / p.cfg.Rate * float64(time.Second))
}

// sendable returns how many messages c may send now.
func (p *Pump) sendable(c *pumpConn) int {
	n := p.cfg.Messages - c.sent
	if p.cfg.Window > 0 {
		n = min(n, p.cfg.Window-(c.sent-c.answered))
	}
	if p.cfg.Rate > 0 {
		elapsed := time.Since(p.start)
		due := 0
		for due < n && p.due(c, c.sent+due) <= elapsed {
			due++
		}
		n = due
	}
	return n
}
