package queue

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidewire/tidewire/internal/pg"
)

// rotateAgain is the pause after a rotation, also a failed one, until the next attempt.
const rotateAgain = 2 * time.Second

// rotate compacts the journal if it has grown. A failure is only logged: the
// journal keeps growing meanwhile. Only the writer calls it.
func (n *shardNode) rotate(ctx context.Context) {
	now := time.Now()
	n.mu.Lock()
	due := n.grown(&n.state) && !now.Before(n.times.rotate)
	n.mu.Unlock()
	if !due {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, n.cfg.Timeout)
	defer cancel()
	rotated, err := n.rewrite(ctx)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.times.rotate = now.Add(pg.Jitter(rotateAgain))
	switch {
	case err != nil:
		n.cfg.Log.Info("journal not compacted, trying again", "queue", n.queue.Name(), "error", err)
	case rotated:
		n.node.stats.Rotations++
		pg.Signal(n.node.litter)
	}
}

// grown reports whether the journal should be compacted: it has many rows, and
// at least as many as the compacted row would have segments.
func (n *shardNode) grown(s *state) bool {
	return s.rows > int64(max(n.cfg.RotateRows, len(s.live)))
}

// rewrite compacts the journal: it appends the state as one row and deletes all
// rows before, unless another node was first. It holds the lock for two round
// trips: the state must not change in between, and with many writing nodes an
// optimistic attempt would hardly succeed. A snapshot sees either the one row
// or all that it replaces.
func (n *shardNode) rewrite(ctx context.Context) (rotated bool, err error) {
	err = pgx.BeginTxFunc(ctx, n.queue.pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		for _, sql := range []string{pg.WriterSettings(lockPatience), idleTimeoutSQL} {
			if _, err := tx.Exec(ctx, sql); err != nil {
				return err
			}
		}
		s, now, err := n.current(ctx, tx)
		if err != nil || !n.grown(s) {
			return err
		}
		body, err := s.snapshot(now)
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, rotateSQL, n.queue.id, s.seen+1, s.top, body)
		rotated = err == nil
		return err
	})
	return rotated && err == nil, err
}

// current returns the state and PostgreSQL's time, and holds the lock until the end of tx.
func (n *shardNode) current(ctx context.Context, tx pgx.Tx) (*state, time.Time, error) {
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
