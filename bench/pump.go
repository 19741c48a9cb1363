package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"runtime"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tidewire/tidewire/websocket"
)

// Answer is what a server sends for a message.
type Answer int

const (
	// NoAnswer: nothing before the closing handshake.
	NoAnswer Answer = iota
	// CountAnswer: now and then the decimal count of messages dealt with.
	CountAnswer
	// EchoAnswer: each message comes back.
	EchoAnswer
)

// PumpConfig says what load to make.
type PumpConfig struct {
	// URL of the WebSocket.
	URL string
	// Clients is the number of connections.
	Clients int
	// Messages is how many each of them sends.
	Messages int
	// Payload is the size of each in bytes, at least MinPayload.
	Payload int
	// Answer says what comes back.
	Answer Answer
	// Window is how many messages of a connection may be unanswered; 1 is a
	// closed loop. 0 means no bound.
	Window int
	// Rate is messages/s of all connections together, sent at times fixed in
	// advance (open loop): latency counts from then. 0 means as fast as it
	// goes.
	Rate float64
	// Patience is how long nothing may happen at all. Defaults to 2 minutes.
	Patience time.Duration
	// Progress is told, every two seconds, what has been sent and answered. It
	// is called by the goroutine that makes the load.
	Progress func(sent, answered int)
}

// PumpResult is what a Pump saw.
type PumpResult struct {
	Sent     int
	Answered int
	// Unsent is what the schedule of an open loop still owed at the end.
	Unsent int
	// Closed is how many connections completed the closing handshake.
	Closed int
	// FirstFrame is when the first message was handed to the kernel, LastClose
	// when the last closing handshake was complete.
	FirstFrame, LastClose time.Time
	// Latency from the send (closed loop) or from the due time (open loop) to
	// the answer.
	Latency *Histogram
}

// Pump drives all its connections from one goroutine: no hand-over between
// threads, one wait for all sockets, frames made in one shared buffer.
type Pump struct {
	cfg     PumpConfig
	poll    *poller
	conns   []*pumpConn
	byFD    map[int]*pumpConn
	out, in []byte // shared by all connections
	filler  []byte // of every payload
	open    int
	result  PumpResult
	start   time.Time
}

const (
	pumpWrite = 64 << 10 // bytes of frames made for one write
	pumpRead  = 64 << 10
)

// pumpConn is one connection: of Pump's goroutine alone.
type pumpConn struct {
	fd       int
	index    int
	frames   *frames
	rest     []byte // made, and not yet taken by the kernel
	partial  []byte // the part of a frame that has arrived
	sent     int
	answered int
	sentAt   []time.Duration // ring of send times, by message modulo Window
	closing  bool            // our Close frame is made
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
		filler: AppendPayload(nil, 0, 0, cfg.Payload), result: PumpResult{Latency: NewHistogram()},
	}
	op := websocket.OpText
	for i := range cfg.Clients {
		fd, leftover, err := dialRaw(ctx, cfg.URL)
		if err != nil {
			p.Close()
			return nil, fmt.Errorf("connect client %d: %w", i+1, err)
		}
		c := &pumpConn{fd: fd, index: i, frames: newFrames(op, i, cfg.Payload), partial: leftover}
		if cfg.Window > 0 {
			c.sentAt = make([]time.Duration, cfg.Window)
		}
		p.conns, p.byFD[fd] = append(p.conns, c), c
		if err := poll.add(fd); err != nil {
			p.Close()
			return nil, err
		}
	}
	p.open = len(p.conns)
	return p, nil
}

// dialRaw makes the handshake and takes the socket out of the Go runtime's
// care.
func dialRaw(ctx context.Context, rawURL string) (fd int, leftover []byte, err error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return 0, nil, err
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", u.Host)
	if err != nil {
		return 0, nil, err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(30 * time.Second))
	leftover, err = websocket.ClientHandshake(conn, u)
	if err != nil {
		return 0, nil, err
	}
	file, err := conn.(*net.TCPConn).File()
	if err != nil {
		return 0, nil, err
	}
	defer file.Close()
	fd, err = unix.Dup(int(file.Fd()))
	if err != nil {
		return 0, nil, err
	}
	unix.CloseOnExec(fd)
	return fd, leftover, unix.SetNonblock(fd, true)
}

// Close closes the sockets without a handshake. Run leaves nothing to close.
func (p *Pump) Close() {
	for _, c := range p.conns {
		if !c.done {
			c.done = true
			unix.Close(c.fd)
		}
	}
	p.poll.close()
}

// Run sends everything, waits for the answers and for the closing handshakes,
// and returns what it saw, also beside an error.
func (p *Pump) Run(ctx context.Context) (PumpResult, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer p.Close()
	p.start = time.Now()
	err := p.run(ctx)
	for _, c := range p.conns {
		p.result.Sent += c.sent
		p.result.Answered += c.answered
		p.result.Unsent += p.cfg.Messages - c.sent
	}
	return p.result, err
}

func (p *Pump) run(ctx context.Context) error {
	for _, c := range p.conns {
		if err := p.send(c); err != nil {
			return err
		}
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
			for _, c := range p.conns {
				if err := p.send(c); err != nil {
					return err
				}
			}
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

func (p *Pump) report() {
	sent, answered := 0, 0
	for _, c := range p.conns {
		sent += c.sent
		answered += c.answered
	}
	p.cfg.Progress(sent, answered)
}

// pause is how long to wait for the sockets: until the next message is due.
func (p *Pump) pause() time.Duration {
	if p.cfg.Rate > 0 {
		return time.Millisecond
	}
	return 100 * time.Millisecond
}

// due is when message seq of a connection is to be sent, from the start.
func (p *Pump) due(c *pumpConn, seq int) time.Duration {
	nth := float64(seq*len(p.conns) + c.index)
	return time.Duration(nth / p.cfg.Rate * float64(time.Second))
}

// sendable is how many messages c may send now.
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

// send hands the kernel what it takes, one write at most, and asks the poller
// for more while there is more.
func (p *Pump) send(c *pumpConn) error {
	if c.done {
		return nil
	}
	if len(c.rest) == 0 {
		p.out = p.fill(c, p.out[:0])
		if len(p.out) == 0 {
			return p.want(c, false)
		}
		n, err := p.write(c, p.out)
		if err != nil {
			return err
		}
		c.rest = append(c.rest[:0], p.out[n:]...)
	} else {
		n, err := p.write(c, c.rest)
		if err != nil {
			return err
		}
		c.rest = c.rest[:copy(c.rest, c.rest[n:])]
	}
	return p.want(c, len(c.rest) > 0 || !c.closing && p.cfg.Rate == 0 && p.sendable(c) > 0 || p.finished(c) && !c.closing)
}

func (p *Pump) want(c *pumpConn, write bool) error {
	if write == c.writing {
		return nil
	}
	c.writing = write
	return p.poll.wantWrite(c.fd, write)
}

// finished reports whether c has nothing left to send or to wait for.
func (p *Pump) finished(c *pumpConn) bool {
	return c.sent == p.cfg.Messages && (p.cfg.Answer == NoAnswer || c.answered == p.cfg.Messages)
}

// fill makes the frames that may be sent now, the Close frame after the last.
func (p *Pump) fill(c *pumpConn, out []byte) []byte {
	n := p.sendable(c)
	if n > 0 && p.result.FirstFrame.IsZero() {
		p.result.FirstFrame = time.Now()
	}
	var now time.Duration
	if p.cfg.Window > 0 && n > 0 {
		now = time.Since(p.start)
	}
	for ; n > 0 && len(out) < pumpWrite; n-- {
		out = c.frames.append(out, c.sent)
		if p.cfg.Window > 0 {
			c.sentAt[c.sent%p.cfg.Window] = now
		}
		c.sent++
	}
	if p.finished(c) && !c.closing {
		c.closing = true
		out = websocket.AppendHeader(out, websocket.Header{
			Fin: true, Op: websocket.OpClose, Masked: true, Length: 2}) // a zero key leaves the code as it is
		out = append(out, byte(websocket.StatusNormal>>8), byte(websocket.StatusNormal&0xff))
	}
	return out
}

func (p *Pump) write(c *pumpConn, b []byte) (int, error) {
	n, err := unix.Write(c.fd, b)
	if err == unix.EAGAIN || err == unix.EINTR {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("client %d: write after %d messages: %w", c.index+1, c.sent, err)
	}
	return n, nil
}

// receive reads once and walks the frames in place.
func (p *Pump) receive(c *pumpConn) error {
	n, err := unix.Read(c.fd, p.in)
	if err == unix.EAGAIN || err == unix.EINTR {
		return nil
	}
	if err == nil && n == 0 {
		err = errors.New("closed without a closing handshake")
	}
	if err != nil {
		return fmt.Errorf("client %d: read after %d answers: %w", c.index+1, c.answered, err)
	}
	b := p.in[:n]
	if len(c.partial) > 0 {
		c.partial = append(c.partial, b...)
		b = c.partial
	}
	used, err := p.walk(c, b)
	if err != nil || c.done {
		return err
	}
	c.partial = append(c.partial[:0], b[used:]...)
	if p.sendable(c) > 0 || p.finished(c) {
		return p.send(c)
	}
	return nil
}

// walk handles the whole frames in b and returns how many bytes they are.
func (p *Pump) walk(c *pumpConn, b []byte) (used int, err error) {
	now := time.Duration(-1) // asked for once a read, and only if needed
	for {
		h, n, err := websocket.ParseHeader(b[used:])
		if err != nil {
			return 0, fmt.Errorf("client %d: %w", c.index+1, err)
		}
		if n == 0 || int64(len(b)-used-n) < h.Length {
			return used, nil
		}
		payload := b[used+n : used+n+int(h.Length)]
		used += n + int(h.Length)
		switch {
		case h.Op == websocket.OpClose:
			return used, p.closed(c)
		case h.Op >= websocket.OpClose: // pings need no answer within a run
			continue
		}
		if now < 0 {
			now = time.Since(p.start)
		}
		if err := p.answer(c, payload, now); err != nil {
			return 0, err
		}
	}
}

func (p *Pump) answer(c *pumpConn, payload []byte, now time.Duration) error {
	answered := c.answered + 1
	switch p.cfg.Answer {
	case CountAnswer:
		n, err := strconv.Atoi(string(payload))
		if err != nil {
			return fmt.Errorf("client %d: answer %q is no count", c.index+1, payload)
		}
		answered = n
	case EchoAnswer:
		client, seq, ok := ParsePayload(payload, p.filler)
		if !ok || client != c.index || seq != c.answered {
			return fmt.Errorf("client %d: echo %d is not message %d as it was sent", c.index+1, c.answered, c.answered)
		}
	default:
		return fmt.Errorf("client %d: got %q though nothing was asked for", c.index+1, payload)
	}
	if answered <= c.answered || answered > c.sent {
		return fmt.Errorf("client %d: answer counts %d after %d, with %d sent", c.index+1, answered, c.answered, c.sent)
	}
	for seq := c.answered; seq < answered; seq++ {
		switch {
		case p.cfg.Rate > 0:
			p.result.Latency.Record(now - p.due(c, seq))
		case p.cfg.Window > 0:
			p.result.Latency.Record(now - c.sentAt[seq%p.cfg.Window])
		}
	}
	c.answered = answered
	return nil
}

func (p *Pump) closed(c *pumpConn) error {
	if !c.closing {
		return fmt.Errorf("client %d: server closed after %d of %d messages", c.index+1, c.sent, p.cfg.Messages)
	}
	c.done = true
	unix.Close(c.fd)
	p.open--
	p.result.Closed++
	p.result.LastClose = time.Now()
	return nil
}
