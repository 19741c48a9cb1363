package eventstore

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/standby"
)

// endsLast is how long a cached head of the primary is used for reads from a standby that end at or before that head.
const endsLast = time.Second

// ends is the position of the primary's last event, and the base of its history.
type ends struct {
	head, history int64
	at            time.Time // when it was asked
}

// lastEnds caches the last known ends of the primary. Safe for concurrent use.
type lastEnds struct {
	mu   sync.Mutex
	ends ends // guarded by mu
}

func (l *lastEnds) get() ends {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ends
}

func (l *lastEnds) set(e ends) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ends = e
}

// readPage is page for queries and projections. It reads from the standby if that has all events that the primary had when
// readPage was called.
func (s *Store) readPage(ctx context.Context, r pageRequest) ([]Event, pageResult, error) {
	if events, found, ok := s.standbyPage(ctx, r, false); ok {
		return events, found, nil
	}
	return s.page(ctx, r)
}

// followPage is readPage for subscribers. Near the end of the store it reads from the primary only, to wait for one server
// and not for two.
func (s *Store) followPage(ctx context.Context, r pageRequest) ([]Event, pageResult, error) {
	if seen := s.hub.seen(); seen == 0 || seen-r.after >= streamRows {
		if events, found, ok := s.standbyPage(ctx, r, true); ok {
			return events, found, nil
		}
	}
	return s.page(ctx, r)
}

// standbyPage reads a page from the standby, with the events that the primary had when standbyPage was called. It asks the primary for its
// head, unless the request ends at or before a head that is less than a second old. now makes it always ask.
func (s *Store) standbyPage(ctx context.Context, r pageRequest, now bool) (events []Event, found pageResult, ok bool) {
	ok = s.cfg.Standby.Read(ctx, func(ctx context.Context, pool *pgxpool.Pool) (err error) {
		e := s.primary.get()
		if now || r.before-1 > e.head || time.Since(e.at) >= endsLast {
			if e, err = s.askPrimary(ctx); err != nil {
				return standby.ErrNotAsked // the caller's read from the primary will report the error
			}
		}
		if r.after >= e.head {
			return standby.ErrNotAsked
		}
		r.before = min(r.before, e.head+1) // a standby may show a commit before the primary does
		r.head = true
		conn, err := pool.Acquire(ctx)
		if err != nil {
			return err
		}
		defer conn.Release()
		if err := s.checkStandby(ctx, conn.Conn(), e); err != nil {
			return err
		}
		events, found, err = s.pageOn(ctx, conn.Conn(), r)
		found.head = e.head
		return err
	})
	return events, found, ok
}

// askPrimary returns the ends of the primary now.
func (s *Store) askPrimary(ctx context.Context) (ends, error) {
	e := ends{at: time.Now()}
	if err := s.pool.QueryRow(ctx, s.sql.ends).Scan(&e.head, &e.history); err != nil {
		return e, err
	}
	s.primary.set(e)
	return e, nil
}

// checkStandby returns nil if the standby has the history of the primary and has reached the primary's head: then both have the same
// events up to there. The result stays valid for this connection: a server restarts before it returns to an older history.
func (s *Store) checkStandby(ctx context.Context, conn *pgx.Conn, e ends) error {
	var there ends
	if err := conn.QueryRow(ctx, s.sql.ends).Scan(&there.head, &there.history); err != nil {
		return err
	}
	switch {
	case there.history < e.history:
		return standby.ErrHistory
	case there.history > e.history:
		s.primary.set(ends{})
		return standby.ErrLacks
	case there.head < e.head:
		return standby.ErrLacks
	}
	return nil
}

// seen returns the head of the store at the last poll, or 0.
func (h *hub) seen() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.head
}
