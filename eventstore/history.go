package eventstore

import (
	"context"
)

// historyBits: each failover begins a new history, after a multiple of 2^18. See migrate/sql/0001_histories.sql.
const historyBits = 18

// continues returns a HistoryLostError if a failover has lost events up to after, so that a reader may have seen lost
// events. head is the position of the store's last event.
func (s *Store) continues(ctx context.Context, after, head int64) error {
	if after <= head && after>>historyBits == head>>historyBits {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	var last *int64
	if err := s.pool.QueryRow(ctx, s.sql.lostSince, after, head).Scan(&last); err != nil || last == nil {
		return err
	}
	return &HistoryLostError{Last: *last}
}

// continues checks the Subscription's position as Store.continues does. It queries PostgreSQL only when the store has
// reached another block of 2^18 positions.
func (sub *Subscription) continues(ctx context.Context, head int64) error {
	block := head >> historyBits
	if sub.known == 0 || sub.known <= head && sub.clear == block {
		return nil
	}
	if err := sub.store.continues(ctx, sub.known, head); err != nil {
		return err
	}
	sub.clear = block
	return nil
}

// lossCheck finds out repeatedly whether events up to a position are lost. It queries PostgreSQL only when the store has
// reached another block of positions.
type lossCheck struct {
	store *Store
	clear int64 // block of positions, plus one, up to which no loss was found; 0 before the first check
}

// check returns a HistoryLostError if events up to after are lost. seen is a position that the store has reached.
func (a *lossCheck) check(ctx context.Context, after, seen int64) error {
	if after == 0 || seen > 0 && a.clear == seen>>historyBits+1 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, a.store.cfg.Timeout)
	defer cancel()
	e, err := a.store.askPrimary(ctx)
	if err == nil {
		err = a.store.continues(ctx, after, max(e.head, e.history))
	}
	if err == nil {
		a.clear = e.head>>historyBits + 1
	}
	return err
}
