package eventstore

import (
	"context"
)

// historyBits: another history begins after a multiple of 2^18. See migrate/sql/0001_histories.sql.
const historyBits = 18

// continues returns a HistoryLostError if who has read up to after has had events that are lost. head is the position
// of the store's last event.
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

// continues is that of the Store. It asks again only when the store has got to the next block of positions.
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

// stillThere finds out, again and again, whether events up to a position are lost. It asks only when the store has got to
// another block of positions.
type stillThere struct {
	store *Store
	clear int64 // block of positions, plus one, up to which nothing of before is lost
}

// still returns a HistoryLostError if events up to after are lost. seen is a position that the store has got to.
func (a *stillThere) still(ctx context.Context, after, seen int64) error {
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
