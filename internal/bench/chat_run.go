package bench

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"time"
)

const (
	// chatDialers is the number of connections that are opened at the same time.
	chatDialers = 16
	// chatRead is the largest read, in bytes.
	chatRead = 256 << 10
	// dueEvery is the number of sockets after which the run checks the timers:
	// reading all sockets may take milliseconds.
	dueEvery = 16
	// errorPause is the time after which a client reconnects when the server has closed its
	// connection.
	errorPause = time.Second
)

// phase of a run.
type phase int

const (
	ramping  phase = iota
	settling       // all are members, most likely
	holding
	draining // no more chats of the hold are sent; those in flight may arrive
	leaving
)

// chatRun drives all its connections from one goroutine: all times come from
// one clock, and a received chat costs a read and a look at the frame's header.
type chatRun struct {
	cfg     ChatConfig
	poll    *poller
	start   time.Time
	phase   phase
	since   time.Duration // when the phase began
	clients []chatClient
	byFD    map[int]*chatSession
	timers  chatTimers
	dialed  chan dialed
	slots   chan struct{} // of dialers
	dialing int
	history chatHistory
	held    int // chats sent in the hold
	in      []byte
	opened  openedFrames
	mark    ChatMark // the current state
	result  ChatResult
	latency recorder
	late    recorder
}

// chatClient is one client, with all its connections one after the other.
type chatClient struct {
	session *chatSession // nil: not connected
	said    int          // in the hold
	heard   int          // of those that others sent in the hold
	again   int          // of those, known duplicates
}

type dialed struct {
	client   int
	socket   rawSocket
	leftover []byte
	took     time.Duration
	err      error
}

// RunChat makes the load and returns the result, also with an error. A fault of
// the server is a result, not an error.
func RunChat(ctx context.Context, cfg ChatConfig) (ChatResult, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return ChatResult{}, err
	}
	poll, err := newPoller()
	if err != nil {
		return ChatResult{}, err
	}
	defer poll.close()
	c := &chatRun{
		cfg: cfg, poll: poll, start: time.Now(), clients: make([]chatClient, cfg.Clients), byFD: make(map[int]*chatSession),
		dialed: make(chan dialed, cfg.Clients), slots: make(chan struct{}, chatDialers), in: make([]byte, chatRead),
		latency: newRecorder(), late: newRecorder(),
	}
	c.result = ChatResult{
		Started: c.start, Errors: make(map[string]int), FirstError: make(map[string]string), Connect: NewHistogram(),
		Latency: c.latency.all, Late: c.late.all,
	}
	cfg.Gauge.begin()
	err = c.run(ctx)
	cfg.Gauge.end(c.counters())
	return c.result, err
}

func (c *chatRun) run(ctx context.Context) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	ctx, cancel := context.WithCancel(ctx)
	defer c.abandon(cancel)
	for i := range c.clients {
		at := time.Duration(i) * c.cfg.Ramp / time.Duration(len(c.clients))
		c.after(at, connectDue, i, nil)
	}
	c.after(time.Second, markDue, 0, nil)
	for !c.finished() {
		if err := ctx.Err(); err != nil {
			return err
		}
		c.dialsDone()
		c.due(ctx)
		c.proceed()
		if c.cfg.Gauge.wanted() {
			c.cfg.Gauge.tell(c.counters())
		}
		if c.mark.Connections == 0 && c.result.Errors["connect"] >= len(c.clients) {
			return fmt.Errorf("no client could connect: %s", c.result.FirstError["connect"])
		}
		if err := c.wait(ctx); err != nil {
			return err
		}
	}
	c.finish()
	return nil
}

// counters returns how far the run is. Messages counts the chats sent.
func (c *chatRun) counters() Counters {
	now := Counters{
		Phase: PhaseWarmUp, Messages: int64(c.mark.Sent), Deliveries: int64(c.mark.Deliveries), Errors: int64(c.mark.Errors),
		Missing: int64(c.result.Unsent), Offered: c.cfg.Rate * float64(c.mark.Open),
		Latency: c.latency.take(), Late: c.late.take(),
	}
	switch {
	case c.phase >= draining:
		now.Phase = PhaseDrain
	case c.phase == holding || c.cfg.moving():
		now.Phase = PhaseMeasured
	}
	return now
}

func (c *chatRun) now() time.Duration { return time.Since(c.start) }

// wait handles socket events until the next timer is due.
func (c *chatRun) wait(ctx context.Context) error {
	pause := 100 * time.Millisecond
	if c.dialing > 0 || c.phase == draining {
		pause = time.Millisecond
	}
	if len(c.timers) > 0 {
		pause = min(pause, max(0, c.timers[0].at-c.now()))
	}
	handled := 0
	return c.poll.wait(pause, func(ev event) {
		if handled++; handled%dueEvery == 0 {
			c.due(ctx)
		}
		s := c.byFD[ev.fd]
		if s == nil {
			return // closed by an earlier event
		}
		if ev.readable {
			c.receive(s)
		}
		if ev.writable && s.fd >= 0 {
			c.flush(s)
		}
	})
}

// proceed enters the next phase when it is due.
func (c *chatRun) proceed() {
	now := c.now()
	switch c.phase {
	case ramping:
		if now >= c.cfg.Ramp && (c.cfg.moving() || c.allJoined() || now >= c.cfg.Ramp+c.cfg.Patience) {
			c.enter(settling, now)
			if c.cfg.moving() { // there is no moment at which all clients are members
				c.enter(holding, now)
			}
		}
	case settling:
		if now >= c.since+c.cfg.joinMargin() {
			c.enter(holding, now)
		}
	case holding:
		if now >= c.since+c.cfg.Hold {
			c.result.HoldEnd = c.markAt(now)
			c.enter(draining, now)
		}
	case draining:
		if c.cfg.moving() || c.allHeard() || now >= c.since+c.cfg.Patience {
			c.enter(leaving, now)
			for i := range c.clients {
				c.after(now+time.Duration(i)*c.cfg.Down/time.Duration(len(c.clients)), leaveDue, i, nil)
			}
		}
	}
}

func (c *chatRun) enter(p phase, now time.Duration) {
	c.phase, c.since = p, now
	if p == holding {
		c.result.HoldStart = c.markAt(now)
	}
}

func (c *chatRun) markAt(now time.Duration) ChatMark {
	m := c.mark
	m.At = now
	return m
}

func (c *chatRun) allJoined() bool { return c.mark.Open == len(c.clients) }

// allHeard reports whether every client has received all chats of the hold.
func (c *chatRun) allHeard() bool {
	for i := range c.clients {
		if client := &c.clients[i]; client.heard-client.again < c.held-client.said {
			return false
		}
	}
	return true
}

// finished reports whether everybody has left.
func (c *chatRun) finished() bool {
	return c.phase == leaving && len(c.byFD) == 0 && c.dialing == 0 &&
		c.now() >= c.since+c.cfg.Down
}

func (c *chatRun) finish() {
	r := &c.result
	r.End = c.markAt(c.now())
	if c.cfg.moving() {
		r.Expected, r.Received = r.Checked.Expected, r.Checked.Received
		return
	}
	for _, client := range c.clients {
		due := c.held - client.said
		r.Expected += due
		r.Received += min(client.heard, due)
	}
}

// abandon closes the connections of a run that does not end normally.
func (c *chatRun) abandon(cancel func()) {
	cancel()
	for ; c.dialing > 0; c.dialing-- {
		if d := <-c.dialed; d.err == nil {
			d.socket.close()
		}
	}
	for _, s := range c.byFD {
		s.close()
	}
}

// connect opens a connection in the background.
func (c *chatRun) connect(ctx context.Context, client int) {
	c.dialing++
	go func() {
		c.slots <- struct{}{}
		defer func() { <-c.slots }()
		start := time.Now()
		urls := strings.Split(c.cfg.URL, "|")
		socket, leftover, err := dialRawBy(ctx, urls[client%len(urls)], c.cfg.TLS, c.cfg.handshake())
		c.dialed <- dialed{client, socket, leftover, time.Since(start), err}
	}()
}

// dialsDone takes over the opened connections.
func (c *chatRun) dialsDone() {
	for {
		select {
		case d := <-c.dialed:
			c.dialing--
			if d.err != nil {
				c.fail("connect", d.err)
				c.comeBack(d.client, errorPause)
				continue
			}
			c.mark.Connections++
			c.result.Connect.Record(d.took)
			c.join(d)
		default:
			return
		}
	}
}

// comeBack makes a client connect again after the pause, unless the run ends before that.
func (c *chatRun) comeBack(client int, pause time.Duration) {
	if at := c.now() + pause; c.phase < draining && (!c.cfg.moving() || at < c.cfg.Return) {
		c.after(at, connectDue, client, nil)
	}
}

// fail counts an error.
func (c *chatRun) fail(kind string, err error) {
	c.mark.Errors++
	c.result.Errors[kind]++
	if _, known := c.result.FirstError[kind]; !known {
		c.result.FirstError[kind] = err.Error()
	}
}

// The kinds of timers.
type timerKind int

const (
	connectDue timerKind = iota
	chatDue
	leaveDue   // of a client at the end
	sessionDue // of a session that has lasted its time
	timeoutDue // an answer should have come
	markDue
)

type chatTimer struct {
	at      time.Duration
	kind    timerKind
	client  int
	session *chatSession // nil, or the only session that the timer is for
}

type chatTimers []chatTimer

func (t chatTimers) Len() int           { return len(t) }
func (t chatTimers) Less(i, j int) bool { return t[i].at < t[j].at }
func (t chatTimers) Swap(i, j int)      { t[i], t[j] = t[j], t[i] }
func (t *chatTimers) Push(x any)        { *t = append(*t, x.(chatTimer)) }
func (t *chatTimers) Pop() any {
	last := len(*t) - 1
	x := (*t)[last]
	*t = (*t)[:last]
	return x
}

func (c *chatRun) after(at time.Duration, kind timerKind, client int, s *chatSession) {
	heap.Push(&c.timers, chatTimer{at, kind, client, s})
}

// due runs the timers that have expired.
func (c *chatRun) due(ctx context.Context) {
	for now := c.now(); len(c.timers) > 0 && c.timers[0].at <= now; {
		t := heap.Pop(&c.timers).(chatTimer)
		s := c.clients[t.client].session
		if t.session != nil && t.session != s {
			continue // that one has ended
		}
		switch t.kind {
		case connectDue:
			c.connect(ctx, t.client)
		case chatDue:
			c.chat(s, t.at)
		case leaveDue, sessionDue:
			if s != nil {
				c.leave(s)
			}
		case timeoutDue:
			if s.state != member {
				c.drop(s, s.waitingFor(), errors.New("no answer in time"))
			}
		case markDue:
			c.takeMark(t.at)
		}
	}
}

func (c *chatRun) takeMark(at time.Duration) {
	c.result.Marks = append(c.result.Marks, c.markAt(c.now()))
	if len(c.result.Marks)%2 == 0 {
		c.cfg.Progress(c.markAt(c.now()))
	}
	if !c.finished() {
		c.after(at+time.Second, markDue, 0, nil)
	}
}
