package eventstore

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/standby"
)

// endsLast is for how long what is known of the primary's last event decides what is read from a standby, where a read has a bound
// before that event.
const endsLast = time.Second

// ends are the position of the last event that the primary had, and the base of its history.
type ends struct {
	head, history int64
	at            time.Time // when it was asked
}

// lastEnds are the ends last heard of. Safe for concurrent use.
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

// readPage is page for queries and projections: from the standby if there is one that has all that the primary had when this was
// called.
func (s *Store) readPage(ctx context.Context, r pageRequest) ([]Event, pageResult, error) {
	if events, found, ok := s.standbyPage(ctx, r, false); ok {
		return events, found, nil
	}
	return s.page(ctx, r)
}

// followPage is the same for those who follow the store. Near its end they are not to wait for two servers.
func (s *Store) followPage(ctx context.Context, r pageRequest) ([]Event, pageResult, error) {
	if seen := s.hub.seen(); seen == 0 || seen-r.after >= streamRows {
		if events, found, ok := s.standbyPage(ctx, r, true); ok {
			return events, found, nil
		}
	}
	return s.page(ctx, r)
}

// standbyPage is page from the standby, with the events that the primary had when this was called. If the request ends before an event that
// the primary is known to have had within the last second, it is not asked again, unless now is set.
func (s *Store) standbyPage(ctx context.Context, r pageRequest, now bool) (events []Event, found pageResult, ok bool) {
	ok = s.cfg.Standby.Read(ctx, func(ctx context.Context, pool *pgxpool.Pool) (err error) {
		e := s.primary.get()
		if now || r.before-1 > e.head || time.Since(e.at) >= endsLast {
			if e, err = s.askPrimary(ctx); err != nil {
				return standby.ErrNotAsked // the read from the primary says why
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

// askPrimary returns what the primary has now.
func (s *Store) askPrimary(ctx context.Context) (ends, error) {
	e := ends{at: time.Now()}
	if err := s.pool.QueryRow(ctx, s.sql.ends).Scan(&e.head, &e.history); err != nil {
		return e, err
	}
	s.primary.set(e)
	return e, nil
}

// checkStandby returns nil if the standby is in the history of the primary, and has got as far: so it has the same up to there. What
// it has on this connection it keeps: a server that goes back to an older history starts anew.
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

// seen is the position at which the store ended when it was last polled, or 0.
func (h *hub) seen() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.head
}
