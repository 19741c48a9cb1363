package access

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/auth"
	"github.com/tidewire/tidewire/internal/pg"
)

const (
	// loadEvery is the time between two loads without a notification.
	loadEvery = 30 * time.Second
	// loadTimeout bounds one load.
	loadTimeout = 30 * time.Second
	// awaitTimeout bounds the wait of an act until this server has applied it: a load, that of an act before, and the rest between them.
	awaitTimeout = 10 * time.Second
	// maxPending bounds the users whose changed rights wait to be told. With more, the rights of all users have changed.
	maxPending = 1000
)

// Store is the keys, revocations and acts in one database. The zero value is a Store that is not open, and has no key. Safe for concurrent use.
type Store struct {
	pool *pgxpool.Pool
	log  *slog.Logger
	now  atomic.Pointer[auth.Snapshot]

	changed func(auth.Change) // set before the first connection
	due     chan struct{}     // one slot: something is to be done

	mu      sync.Mutex
	reload  bool
	pending auth.Change   // rights that have changed
	last    int64         // the last act that has had its effects here
	loaded  chan struct{} // closed after the next load
}

// Open loads the keys and revocations. The schema must be up to date.
func (s *Store) Open(ctx context.Context, pool *pgxpool.Pool, log *slog.Logger) error {
	s.pool, s.log = pool, log
	s.due, s.loaded = make(chan struct{}, 1), make(chan struct{})
	got, err := s.load(ctx, 0)
	s.last = got.last
	return err
}

// Snapshot returns the keys and revocations that were loaded last.
func (s *Store) Snapshot() *auth.Snapshot {
	if now := s.now.Load(); now != nil {
		return now
	}
	return noKeys
}

var noKeys = auth.NewSnapshot(nil, nil, nil)

// OnChange has changed called by Run after each change, one call at a time. Call it before the first connection.
func (s *Store) OnChange(changed func(auth.Change)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changed = changed
}

// Run keeps the snapshot up to date until ctx ends.
func (s *Store) Run(ctx context.Context) {
	var listening sync.WaitGroup
	listening.Go(func() { pg.Listen(ctx, s.pool, pg.AccessChannel, s.log, s.listens, s.heard) })
	defer listening.Wait()
	tick := time.NewTicker(loadEvery)
	defer tick.Stop()
	for failed := 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			s.want(func() { s.reload = true })
		case <-s.due:
		}
		began := time.Now()
		err := s.catchUp(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			s.log.Warn("API keys and revocations were not read; the last ones count; trying again", "error", err)
			s.want(func() { s.reload = true })
			if pg.Backoff(ctx, failed) != nil {
				return
			}
			failed++
		default:
			failed = 0
			rest(ctx, min(time.Since(began), time.Second)) // many acts at once share a load, and at least half of the time is free
		}
	}
}

func rest(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// want has Run do something.
func (s *Store) want(note func()) {
	s.mu.Lock()
	note()
	s.mu.Unlock()
	select {
	case s.due <- struct{}{}:
	default:
	}
}

// listens is called when notifications begin to arrive. Earlier ones may be lost, also those of changed rights.
func (s *Store) listens() { s.want(func() { s.reload, s.pending.AllRights = true, true }) }

// heard is called with each notification: {"user":NAME} of an application, and anything else after an act.
func (s *Store) heard(payload string) {
	var of struct{ User *string }
	if json.Unmarshal([]byte(payload), &of) != nil || of.User == nil {
		s.want(func() { s.reload = true })
		return
	}
	s.want(func() {
		if len(s.pending.Rights) >= maxPending {
			s.pending.Rights, s.pending.AllRights = nil, true
		}
		s.pending.Rights = append(s.pending.Rights, *of.User)
	})
}

// catchUp loads what is to be loaded, and tells what has changed.
func (s *Store) catchUp(ctx context.Context) error {
	s.mu.Lock()
	reload, change, changed, last := s.reload, s.pending, s.changed, s.last
	s.reload, s.pending = false, auth.Change{}
	s.mu.Unlock()
	var got loaded
	var err error
	if reload {
		got, err = s.load(ctx, last)
		change.Disconnected = got.disconnected
	}
	if changed != nil && (reload && err == nil || change.AllRights || len(change.Rights) > 0) {
		changed(change)
	}
	if reload && err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.last = got.last
		close(s.loaded)
		s.loaded = make(chan struct{})
	}
	return err
}

// await waits until the snapshot has the act, and its effects have begun here. The error is ErrNotApplied if that does not happen in time. Run goes on
// nevertheless.
func (s *Store) await(ctx context.Context, act int64) error {
	ctx, cancel := context.WithTimeout(ctx, awaitTimeout)
	defer cancel()
	s.want(func() { s.reload = true })
	for {
		s.mu.Lock()
		last, loaded := s.last, s.loaded
		s.mu.Unlock()
		if last >= act {
			return nil
		}
		select {
		case <-loaded:
		case <-ctx.Done():
			return ErrNotApplied
		}
	}
}
