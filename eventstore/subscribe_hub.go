package eventstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tidewire/tidewire/internal/pg"
)

// announceSQL sends a hint that a store has grown. The payload is the number of the
// store and the id of the sender's hub.
const announceSQL = `SELECT pg_notify('` + pg.EventChannel + `', $1)`

// hub tells the subscribers of a Store that it may have grown. This is only a hint,
// after which a subscriber reads. Hints come from the Store's own appends, from other
// processes by NOTIFY, in a separate transaction after the commit, and from a poll,
// because a NOTIFY may be missed.
type hub struct {
	store *Store
	id    string // names this hub in what it announces

	mu        sync.Mutex // guards the fields below
	followers int
	stop      context.CancelFunc // of the goroutines that run while there are followers
	hints     uint64             // number of hints so far
	changed   chan struct{}      // closed and replaced with each hint
	head      int64              // head of the store at the last poll

	announce chan struct{} // one slot: something was committed
	pollNow  chan struct{} // one slot
}

func (h *hub) init(s *Store) {
	h.store = s
	h.id = strconv.FormatUint(rand.Uint64(), 16)
	h.changed = make(chan struct{})
	h.announce, h.pollNow = make(chan struct{}, 1), make(chan struct{}, 1)
	if !s.cfg.NoAnnounce {
		s.running.Go(func() { h.announceAll(s.life) })
	}
}

// follow registers a follower. The first one starts the poll and LISTEN; leave stops
// them with the last one.
func (h *hub) follow() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.store.life.Err() != nil {
		return ErrClosed
	}
	if h.followers++; h.followers > 1 {
		return nil
	}
	ctx, stop := context.WithCancel(h.store.life)
	h.stop = stop
	h.store.running.Go(func() { h.poll(ctx) })
	if !h.store.cfg.NoListen {
		h.store.running.Go(func() {
			// A poll finds commits that were announced before the connection listened.
			pg.Listen(ctx, h.store.pool, pg.EventChannel, h.store.cfg.Log, func() { pg.Signal(h.pollNow) }, h.heard)
		})
	}
	return nil
}

func (h *hub) leave() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.followers--; h.followers == 0 {
		h.stop()
	}
}

// close ends the Store's life under the lock, so that no follow can start goroutines
// after it: then Close waits for the goroutines.
func (h *hub) close(end context.CancelFunc) {
	h.mu.Lock()
	defer h.mu.Unlock()
	end()
}

// committed is called after each commit of this Store.
func (h *hub) committed() {
	h.hint()
	if !h.store.cfg.NoAnnounce {
		pg.Signal(h.announce)
	}
}

func (h *hub) hint() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.hints++
	if h.followers > 0 {
		close(h.changed)
		h.changed = make(chan struct{})
	}
}

// now returns the number of hints so far, and a channel that is closed with the next
// hint.
func (h *hub) now() (hints uint64, changed <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.hints, h.changed
}

// poll reads the head of the store periodically, until ctx ends.
func (h *hub) poll(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	every := h.store.cfg.Poll
	for failing := false; ; {
		select {
		case <-timer.C:
		case <-h.pollNow:
		case <-ctx.Done():
			return
		}
		head, err := h.store.Head(ctx)
		switch {
		case err == nil && h.grown(head):
			h.hint()
		case errors.Is(err, ErrNotFound) && !failing:
			h.hint() // the store was dropped: the followers read, and get this error
		case err != nil && !failing && ctx.Err() == nil:
			h.store.cfg.Log.Warn("polling the event store failed, retrying", "error", err) // once, until it works again
		}
		failing = err != nil
		timer.Reset(pg.Jitter(every))
	}
}

func (h *hub) grown(head int64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	before := h.head
	h.head = head
	return head != before // lower after a failover that lost something
}

// heard handles a notification. Any client of the database may send on the channel.
func (h *hub) heard(payload string) {
	store, sender, _ := strings.Cut(payload, " ")
	if store == strconv.Itoa(int(h.store.id)) && sender != h.id {
		h.hint()
	}
}

// announceAll tells other processes about commits by NOTIFY, until ctx ends. A NOTIFY
// that fails is not retried, because the others poll.
func (h *hub) announceAll(ctx context.Context) {
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		select {
		case <-pause.C:
		case <-ctx.Done():
			return
		}
		select {
		case <-h.announce:
		case <-ctx.Done():
			return
		}
		if err := h.announceOnce(ctx); err != nil && ctx.Err() == nil {
			h.store.cfg.Log.Warn("commits not announced", "error", err)
		}
		pause.Reset(h.store.cfg.AnnounceEvery)
	}
}

func (h *hub) announceOnce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, h.store.cfg.Timeout)
	defer cancel()
	_, err := h.store.pool.Exec(ctx, announceSQL, fmt.Sprint(h.store.id, " ", h.id))
	return err
}
