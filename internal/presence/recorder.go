package presence

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/stream"
)

// Config configures a Recorder.
type Config struct {
	// Stream is the name of the stream. Required.
	Stream string
	// Node is the name of this process, which no other process has or has had. Required.
	Node string
	// Publisher writes into the stream. Required.
	Publisher Publisher
	// Pool is the database of the Publisher. Required.
	Pool *pgxpool.Pool
	// MaxWaiting is how many events may wait to be written; more are lost. One takes about 60 bytes, and its names up to 256. Defaults to 65,536.
	MaxWaiting int
	// Beat is how often the server says that it lives, and GoneAfter after how long without that the others say that it is gone. They default to 3 s and 15 s.
	Beat, GoneAfter time.Duration
	// Metrics gets the metrics. Required.
	Metrics prometheus.Registerer
	// Log receives errors of the database. Required.
	Log *slog.Logger
}

// Publisher is the part of engine.Streams that a Recorder uses.
type Publisher interface {
	Publish(ctx context.Context, stream string, as *engine.RequestID, messages []engine.Message, done func(first engine.Place, err error)) error
}

// Recorder writes what it is told into the stream. Run starts it, Stop ends it. Its other methods and those of its Connections may be called from any
// goroutine, and wait for nothing but a mutex.
type Recorder struct {
	cfg             Config
	written, missed atomic.Uint64 // for the metrics

	target  *stream.Stream // used by the goroutine that writes
	failing bool           // likewise
	history atomic.Int64   // see migrate.EnterHistory

	wake    chan struct{} // one slot: there is something to write
	stop    context.CancelFunc
	giveUp  context.CancelFunc
	running sync.WaitGroup

	mu          sync.Mutex
	connections []*Connection
	last        uint64  // number of the last connection
	events      []event // that wait to be written
	spare       []event // memory for them
	waiting     int     // number of events that wait, or are being written
	lost        uint64
	// anew is the type of the event that says that the picture is told anew, and why; empty if it need not be.
	anew     string
	stopping bool
}

// Connection is a connection that is there. Its methods must not be called after Disconnected; if they are, they do nothing.
type Connection struct {
	recorder *Recorder
	number   uint64

	// Guarded by recorder.mu.
	user  string
	since int64
	index int // in recorder.connections; -1 after the end
	rooms []membership
}

// membership is a room in which a connection is.
type membership struct {
	room, user string
	since      int64
}

// Connected takes note of a new connection. user may be empty.
func (r *Recorder) Connected(user string) *Connection {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last++
	c := &Connection{recorder: r, number: r.last, index: len(r.connections)}
	r.connections = append(r.connections, c)
	c.begin(user, now())
	return c
}

// begin records that the connection is there, as that of a user. recorder.mu is held.
func (c *Connection) begin(user string, at int64) {
	c.user, c.since = user, at
	c.recorder.record(event{kind: connected, at: at, connection: c.number, user: user})
}

// Named takes note of the user of a connection that had none.
func (c *Connection) Named(user string) {
	r := c.recorder
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.index < 0 || c.user == user {
		return
	}
	at := now()
	r.record(event{kind: disconnected, at: at, connection: c.number, user: c.user}) // its key is another one: see docs/how-to/presence-events.md
	c.begin(user, at)
}

// Joined takes note that the connection is in a room now. It implements room.Observer.
func (c *Connection) Joined(room, user string) {
	r := c.recorder
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.index < 0 {
		return
	}
	at := now()
	c.rooms = append(c.rooms, membership{room, user, at})
	r.record(event{kind: joined, at: at, connection: c.number, user: user, room: room})
}

// Left takes note that the connection is not in a room any more. It implements room.Observer.
func (c *Connection) Left(room, user string) {
	r := c.recorder
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range c.rooms {
		if m := c.rooms[i]; m.room == room && m.user == user {
			end := len(c.rooms) - 1
			c.rooms[i], c.rooms[end] = c.rooms[end], membership{}
			c.rooms = c.rooms[:end]
			r.record(event{kind: left, at: now(), connection: c.number, user: user, room: room})
			return
		}
	}
}

// Disconnected takes note of the end of a connection, and that it is in no room any more.
func (c *Connection) Disconnected() {
	r := c.recorder
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.index < 0 {
		return
	}
	at := now()
	for _, m := range c.rooms { // usually it has left them
		r.record(event{kind: left, at: at, connection: c.number, user: m.user, room: m.room})
	}
	r.record(event{kind: disconnected, at: at, connection: c.number, user: c.user})
	end := len(r.connections) - 1
	r.connections[c.index] = r.connections[end]
	r.connections[c.index].index = c.index
	r.connections[end] = nil
	r.connections = r.connections[:end]
	c.index, c.rooms = -1, nil
}

// now is the time in microseconds since 1970.
func now() int64 { return time.Now().UnixMicro() }

// record has an event written, or counts it as lost: until the picture is told anew, all others are lost with it. mu is held.
func (r *Recorder) record(e event) {
	if r.lost > 0 || r.waiting >= r.cfg.MaxWaiting {
		r.lose(1)
		return
	}
	r.events = append(r.events, e)
	r.waiting++
	if len(r.events) == 1 {
		r.nudge()
	}
}

// lose counts lost events, and has the picture told anew. mu is held.
func (r *Recorder) lose(n int) {
	r.lost += uint64(n)
	r.missed.Add(uint64(n))
	r.anew = eventsLost
	r.nudge()
}

func (r *Recorder) nudge() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// work is what is to be written next.
type work struct {
	events  []event
	counted int  // how many of them have waited: the first ones
	last    bool // nothing comes after them
	reopen  bool // the stream of the name may be another one
}

// take returns what is to be written: what has waited, and then, if it is to be told anew, the picture. Copying that holds the mutex for about 10 ms
// with 100,000 connections in two rooms each.
func (r *Recorder) take() work {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := work{events: r.events, counted: len(r.events), last: r.stopping, reopen: r.anew == nodeStarted}
	r.events, r.spare = r.spare[:0], nil
	if r.anew != "" {
		w.events = append(w.events, event{kind: r.anew, at: now(), lost: r.lost})
		w.events = r.picture(w.events)
		r.anew, r.lost = "", 0
	}
	if r.stopping {
		w.events = append(w.events, event{kind: nodeStopped, at: now()})
	}
	return w
}

// picture appends the events that make the picture out of nothing. mu is held.
func (r *Recorder) picture(events []event) []event {
	for _, c := range r.connections {
		events = append(events, event{kind: connected, at: c.since, connection: c.number, user: c.user})
		for _, m := range c.rooms {
			events = append(events, event{kind: joined, at: m.since, connection: c.number, user: m.user, room: m.room})
		}
	}
	return events
}

// wrote takes note that events which waited are written, and takes their memory back.
func (r *Recorder) wrote(w work) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting -= w.counted
	if cap(w.events) <= r.cfg.MaxWaiting {
		clear(w.events)
		r.spare = w.events
	}
}

// failed takes note that of the events that waited some are not written, or perhaps not. It reports whether the Recorder is to stop.
func (r *Recorder) failed(w work, written int) (stopping bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting -= w.counted
	r.lose(max(0, w.counted-written))
	return r.stopping
}

// tellAnew has the picture told anew, after node_started, in the stream that has the name then.
func (r *Recorder) tellAnew() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.anew == "" {
		r.anew = nodeStarted
	}
	r.nudge()
}
