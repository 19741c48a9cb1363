package queue

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// rotateAgain is how long a rotation that failed, or found the other table in
// use, waits for the next attempt.
const rotateAgain = 2 * time.Second

// rotate begins the journal anew if it has grown. A failure is logged: the
// journal grows on. Only the writer calls it.
func (n *part) rotate(ctx context.Context) {
	now := time.Now()
	n.mu.Lock()
	due := n.state.seen-n.state.base >= int64(n.cfg.RotateRows) && !now.Before(n.times.rotate)
	truncate := !n.times.truncate.IsZero() && !now.Before(n.times.truncate)
	n.mu.Unlock()
	if !due && !truncate {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, n.cfg.Timeout)
	defer cancel()
	err := n.truncate(ctx) // another's, that died before it did
	if err == nil && due {
		if err = n.rewrite(ctx); err == nil {
			err = n.truncate(ctx)
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.times.rotate, n.times.truncate = now.Add(jitter(rotateAgain)), time.Time{}
	if err != nil {
		n.times.truncate = n.times.rotate
		n.cfg.Log.Info("journal not truncated, trying again", "queue", n.queue.Name(), "error", err)
	}
}

// truncate empties the journal that is not in use. A transaction that has read
// it makes this fail at once.
func (n *part) truncate(ctx context.Context) error {
	return pgx.BeginTxFunc(ctx, n.queue.pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, truncateSQL, n.queue.id)
		return err
	})
}

// rewrite writes the state as the first row of the other journal. It holds the
// lock for two round trips: the state must not change in between, and many
// nodes write while one tries.
func (n *part) rewrite(ctx context.Context) error {
	return pgx.BeginTxFunc(ctx, n.queue.pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, idleTimeoutSQL); err != nil {
			return err
		}
		s, now, err := n.current(ctx, tx)
		if err != nil || s.seen-s.base < int64(n.cfg.RotateRows) { // another was first
			return err
		}
		body, err := s.snapshot(now)
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, rotateSQL, n.queue.id, s.seen+1, s.top, body)
		return err
	})
}

// current returns the state and PostgreSQL's time, and holds the lock until the end of tx.
func (n *part) current(ctx context.Context, tx pgx.Tx) (*state, time.Time, error) {
	n.mu.Lock()
	s := n.state.clone()
	n.mu.Unlock()
	args, err := (&request{seen: s.seen}).args(n.queue.id)
	if err != nil {
		return nil, time.Time{}, err
	}
	rows, err := tx.Query(ctx, writeSQL, args...)
	if err != nil {
		return nil, time.Time{}, err
	}
	a, err := scanAnswer(rows)
	if err != nil {
		return nil, time.Time{}, err
	}
	for _, e := range a.news {
		if err := s.apply(e); err != nil {
			return nil, time.Time{}, err
		}
	}
	return s, a.now, nil
}
