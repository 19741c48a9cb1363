package stream

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/standby"
)

// HubConfig configures a Hub.
type HubConfig struct {
	// TailBytes bounds the memory for the last messages of each stream with
	// subscriptions; all subscriptions of the stream share it. Defaults to 8 MiB.
	TailBytes int
	// PageMessages is the maximum number of messages that Next returns. Defaults to
	// 1,000.
	PageMessages int
	// PageBytes is the same in bytes of memory; a larger message is returned alone.
	// At most TailBytes. Defaults to 1 MiB.
	PageBytes int
	// Poll is how often the Hub polls PostgreSQL for commits of other processes
	// that were not announced, plus or minus a quarter. Defaults to 1 s.
	Poll time.Duration
	// Announce makes Notify tell other processes as well, by a separate NOTIFY
	// after the commit. Without it they find the messages when they poll. Defaults
	// to false.
	Announce bool
	// AnnounceEvery is the minimum time between two such NOTIFYs, each of which
	// names all streams that have grown since the last: PostgreSQL commits only one
	// transaction with a NOTIFY at a time, and each NOTIFY causes reads in all
	// listeners. If fewer than three commits wait, the time is twice this. Defaults
	// to 2 ms.
	AnnounceEvery time.Duration
	// Peers, if not nil, passes what this process commits to the Hubs of other processes, and back. Then NOTIFY is
	// only for those that Peers does not connect. Defaults to none.
	Peers Peers
	// NoListen turns off LISTEN for announcements of other processes, for
	// connection poolers that do not support LISTEN. Defaults to false.
	NoListen bool
	// IdleTimeout is how long a Hub without subscriptions and watchers keeps its
	// LISTEN connection. Defaults to 30 s.
	IdleTimeout time.Duration
	// MaxMessage is the largest payload that is read, in bytes: see Stream.WithMaxMessage. Defaults to no bound.
	MaxMessage int
	// Standby reads pages that lie at least a page before the end of their stream from a standby
	// server. Defaults to none.
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

// Hub provides subscriptions to streams. It reads each stream once for all
// subscriptions, and learns that a stream has grown
//
//   - immediately from the process's own Appenders, which also pass small batches in
//     memory, or from Notify;
//   - within milliseconds from other processes that announce (NOTIFY);
//   - at the latest by a poll: one query tells whether any stream has grown; if so, a
//     second query reads the heads of all followed streams, 1,000 in a query.
//
// A process needs one Hub. It uses connections of the pool while it reads or polls,
// and one more, which does not count towards the pool's size, for LISTEN, as long as
// any stream is followed.
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
	crowded  chan struct{} // one slot: at least crowd commits wait to be announced

	growth growth // used only by pollAll
	losses losses
	peers  peersCounts
	// followed is how many bytes of messages are held for Followers alone.
	followed atomic.Int64

	mu          sync.Mutex // guards the fields below
	history     int64      // the base of the current history, or unknownHistory; only pollAll writes it
	feeds       map[int32]*feed
	joined      bool            // whether there is a feed that was not polled yet
	busy, idle  chan struct{}   // one is closed: whether there are feeds
	unannounced map[int32]int64 // by stream: the last position, or 0 if it is not known
	waiting     int             // calls of Notify that are not announced
}

// NewHub returns a Hub that reads through the pool. Before Run, subscriptions
// deliver the messages that exist, but do not learn of commits in other processes.
func NewHub(pool *pgxpool.Pool, cfg HubConfig) *Hub {
	h := &Hub{
		cfg: cfg.withDefaults(), pool: pool, id: rand.Uint64(),
		pollNow: make(chan struct{}, 1), announce: make(chan struct{}, 1), crowded: make(chan struct{}, 1),
		feeds: make(map[int32]*feed), unannounced: make(map[int32]int64),
		busy: make(chan struct{}), idle: make(chan struct{}), history: unknownHistory,
	}
	close(h.idle)
	h.life, h.end = context.WithCancel(context.Background())
	return h
}

// Run polls and listens for commits, and announces, until ctx ends. Then all
// subscriptions end with ErrClosed. Call it once.
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
// With After it does not contact PostgreSQL; the other Starts do, and Subscribe returns PostgreSQL's errors,
// also if it is unavailable. If a failover has lost the message at the position of After, Next returns an
// error. For a stream that was dropped the error is ErrNotFound, here or from Next.
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

// Notify tells the Hub that messages were committed to the stream. An Appender with
// this Hub calls it; call it after committing a transaction with AppendTx. It never
// blocks, and does not contact PostgreSQL.
func (h *Hub) Notify(s *Stream) { h.committed(s, tailPage{}, 0) }

// committed is Notify with the committed messages, which have consecutive positions,
// and the last position, if they are known.
func (h *Hub) committed(s *Stream, p tailPage, last int64) {
	if f := h.feedOf(s.id); f != nil {
		h.grown(f, p, last)
	}
	h.send(s, p, last)
	if h.cfg.Announce {
		h.toAnnounce(s.id, last)
	}
}

// Watch returns a channel of one slot that is signalled whenever the stream may
// have grown since it was last signalled, or may be gone. Spurious signals occur. A
// commit before Watch returns may not be signalled: check the stream once after it.
// stop ends the signals; it may be called more than once.
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
		f = newFeed(s.through(h.pool).WithStandby(h.cfg.Standby).WithMaxMessage(h.cfg.MaxMessage), &h.cfg, h.history, h.report)
		f.holes, f.allFollowed = &h.peers.holes, &h.followed
		h.feeds[s.id] = f
		h.joined = true
		f.unlisten = h.listen(f)
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

// leave removes one user; the last one removes the feed.
func (h *Hub) leave(f *feed, subscribers, followers int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f.subscribers -= subscribers
	f.followers -= followers
	if f.users--; f.users > 0 {
		if subscribers > 0 && f.subscribers == 0 {
			f.unsubscribed()
		}
		return
	}
	f.unlisten()
	f.forsake()
	delete(h.feeds, f.stream.id)
	if len(h.feeds) == 0 {
		close(h.idle)
		h.busy = make(chan struct{})
	}
}

// alone reports whether the only user of the feed is one Follower.
func (h *Hub) alone(f *feed) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return f.users == 1 && f.followers == 1
}

// subscribed reports whether the stream has subscriptions, or Followers, as far as this process can tell.
func (h *Hub) subscribed(id int32) bool {
	if h.cfg.Peers != nil {
		return true
	}
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
