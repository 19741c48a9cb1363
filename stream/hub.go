package stream

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/pg"
	"github.com/tidewire/tidewire/standby"
)

// HubConfig configures a Hub.
type HubConfig struct {
	// TailBytes is the memory, for each stream with subscriptions, for its last
	// messages, which all subscriptions share. Defaults to 8 MiB.
	TailBytes int
	// PageMessages is the most messages that Next returns at a time. Defaults
	// to 1,000.
	PageMessages int
	// PageBytes is the same in bytes of memory; a larger message comes alone.
	// At most TailBytes. Defaults to 1 MiB.
	PageBytes int
	// Poll is how often PostgreSQL is asked for what was committed elsewhere and
	// not heard of, give or take a quarter. Defaults to 1 s.
	Poll time.Duration
	// Announce has Notify tell other processes as well, by a NOTIFY of its own
	// after the commit. Without it they hear of the messages when they poll.
	// Defaults to false.
	Announce bool
	// AnnounceEvery is the least time between two such NOTIFYs, each of which
	// names all streams of its time: PostgreSQL lets one transaction with a
	// NOTIFY commit at a time, and each has the readers read. Where fewer than
	// three commits wait for it, it is twice that. Defaults to 2 ms.
	AnnounceEvery time.Duration
	// NoListen keeps the Hub from listening to what others announce, for
	// poolers between it and PostgreSQL that know no LISTEN. Defaults to false.
	NoListen bool
	// IdleTimeout is for how long a Hub without subscriptions and watchers keeps
	// the connection on which it listens. Defaults to 30 s.
	IdleTimeout time.Duration
	// Standby is where pages are read that lie before the end of their stream. Defaults to none.
	Standby *standby.Reader
	// Log receives a line when listening, polling or announcing fails. Defaults
	// to none.
	Log *slog.Logger
}

func (c HubConfig) withDefaults() HubConfig {
	if c.TailBytes <= 0 {
		c.TailBytes = 8 << 20
	}
	if c.PageMessages <= 0 {
		c.PageMessages = 1000
	}
	if c.PageBytes <= 0 {
		c.PageBytes = 1 << 20
	}
	c.PageBytes = min(c.PageBytes, c.TailBytes)
	if c.Poll <= 0 {
		c.Poll = time.Second
	}
	if c.AnnounceEvery <= 0 {
		c.AnnounceEvery = 2 * time.Millisecond
	}
	if c.IdleTimeout <= 0 {
		c.IdleTimeout = 30 * time.Second
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

// Hub lets a process follow streams: one Hub reads each stream once for all
// its subscriptions, and learns that a stream has grown
//
//   - at once from the process's own Appenders, which also hand over small batches, or
//     from Notify;
//   - after milliseconds from other processes that announce;
//   - by a poll in the end: one query tells whether any stream has grown, and if one
//     has, another one asks for all that are followed, or several for more than 1,000.
//
// A process needs one Hub. It takes connections of the pool while it reads or
// polls, and one more, which does not count towards the pool's size, to
// listen, as long as anybody follows a stream.
//
// Safe for concurrent use.
type Hub struct {
	cfg  HubConfig
	pool *pgxpool.Pool
	id   uint64 // names this Hub in what it announces

	life context.Context // of all subscriptions; ends with Run
	end  context.CancelFunc

	pollNow  chan struct{} // one slot
	announce chan struct{} // one slot: unannounced is not empty
	crowded  chan struct{} // one slot: many wait to be announced

	growth  growth // pollAll's alone, and history: the base of the one that goes on
	history int64
	losses  losses

	mu          sync.Mutex // guards the fields below
	feeds       map[int32]*feed
	joined      bool          // a feed that was not polled yet
	busy, idle  chan struct{} // one is closed: whether there are feeds
	unannounced map[int32]struct{}
	waiting     int // calls of Notify that are not announced
}

// NewHub returns a Hub that reads through the pool. Until Run, subscriptions
// deliver what there is, but nobody tells them of more.
func NewHub(pool *pgxpool.Pool, cfg HubConfig) *Hub {
	h := &Hub{
		cfg: cfg.withDefaults(), pool: pool, id: rand.Uint64(),
		pollNow: make(chan struct{}, 1), announce: make(chan struct{}, 1), crowded: make(chan struct{}, 1),
		feeds: make(map[int32]*feed), unannounced: make(map[int32]struct{}),
		busy: make(chan struct{}), idle: make(chan struct{}), history: unknownHistory,
	}
	close(h.idle)
	h.life, h.end = context.WithCancel(context.Background())
	return h
}

// Run learns of what is committed until ctx ends. Then all subscriptions end
// with ErrClosed. Call it once.
func (h *Hub) Run(ctx context.Context) {
	defer h.end()
	var helpers sync.WaitGroup
	if !h.cfg.NoListen {
		helpers.Go(func() { h.listenWhileBusy(ctx) })
	}
	if h.cfg.Announce {
		helpers.Go(func() { h.announceAll(ctx) })
	}
	h.pollAll(ctx)
	helpers.Wait()
}

// Subscribe returns a Subscription to the stream that begins at start. It must
// be closed. The stream may have been looked up through another pool.
//
// After asks nothing of PostgreSQL; the other Starts do, and return its errors,
// also that it is away. Whether a failover has lost what was at the position of After, Next says. For a stream that was dropped the error is ErrNotFound,
// here or from Next.
func (h *Hub) Subscribe(ctx context.Context, s *Stream, start Start) (*Subscription, error) {
	if err := s.checkSingle("subscribe to"); err != nil {
		return nil, err
	}
	after, err := start.resolve(ctx, s.through(h.pool))
	if err != nil {
		return nil, fmt.Errorf("subscribe to stream %q: %w", s.name, err)
	}
	if h.life.Err() != nil {
		return nil, ErrClosed
	}
	life, end := context.WithCancel(h.life)
	sub := &Subscription{hub: h, feed: h.follow(s, 1, 0), life: life, end: end, adrift: start.adrift(), floats: start.kind != startAfter}
	sub.after.Store(after)
	return sub, nil
}

// Notify says that something was committed to the stream: an Appender that has the Hub
// does so, and whoever has committed an AppendTx. It never waits, and asks nothing of
// PostgreSQL.
func (h *Hub) Notify(s *Stream) { h.committed(s, tailPage{}) }

// committed is Notify with what was committed, side by side, if that is known.
func (h *Hub) committed(s *Stream, p tailPage) {
	h.mu.Lock()
	f := h.feeds[s.id]
	subscribers := 0
	if f != nil {
		subscribers = f.subscribers
	}
	if h.cfg.Announce {
		h.unannounced[s.id] = struct{}{}
		if h.waiting++; h.waiting == crowd {
			pg.Signal(h.crowded)
		}
	}
	h.mu.Unlock()
	switch {
	case f == nil:
	case subscribers > 0:
		f.grown(p)
	default:
		f.grownAlone(p)
	}
	if h.cfg.Announce {
		pg.Signal(h.announce)
	}
}

// Watch returns a channel of one slot that is signalled whenever the stream
// may have grown since it was last signalled, or may be gone. Signals without
// a reason occur. A commit before Watch returns may not be
// signalled: look once after it. stop ends the signals; it may be called more
// than once.
func (h *Hub) Watch(s *Stream) (changed <-chan struct{}, stop func()) {
	f := h.follow(s, 0, 0)
	w := f.watch()
	return w, sync.OnceFunc(func() {
		f.unwatch(w)
		h.leave(f, 0, 0)
	})
}

// follow returns the stream's feed, with one user more: a subscriber, a follower or neither.
func (h *Hub) follow(s *Stream, subscribers, followers int) *feed {
	h.mu.Lock()
	defer h.mu.Unlock()
	f := h.feeds[s.id]
	if f == nil {
		f = newFeed(s.through(h.pool).WithStandby(h.cfg.Standby), &h.cfg, h.report)
		h.feeds[s.id] = f
		h.joined = true
		if len(h.feeds) == 1 {
			close(h.busy)
			h.idle = make(chan struct{})
		}
	}
	f.users++
	f.subscribers += subscribers
	f.followers += followers
	return f
}

// leave takes one user off; the last one takes the feed along.
func (h *Hub) leave(f *feed, subscribers, followers int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f.subscribers -= subscribers
	f.followers -= followers
	if f.users--; f.users > 0 {
		return
	}
	delete(h.feeds, f.stream.id)
	if len(h.feeds) == 0 {
		close(h.idle)
		h.busy = make(chan struct{})
	}
}

// alone reports whether the feed has one user, a Follower.
func (h *Hub) alone(f *feed) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return f.users == 1 && f.followers == 1
}

// subscribed reports whether the stream has subscriptions, or Followers.
func (h *Hub) subscribed(id int32) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	f := h.feeds[id]
	return f != nil && f.subscribers+f.followers > 0
}

// feedOf returns the stream's feed, or nil.
func (h *Hub) feedOf(id int32) *feed {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.feeds[id]
}

// occupation returns the channels that are closed while there are feeds, and
// while there are none.
func (h *Hub) occupation() (busy, idle <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.busy, h.idle
}
