package stream

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/tidewire/tidewire/internal/pg"
)

// write commits what has gathered, in one transaction, and then the seeks, one
// by one, and answers all.
func (gs *Groups) write(ctx context.Context, b offsetBatch) {
	committed, err := gs.writeCommits(ctx, b.positions)
	for _, c := range b.commits {
		offset, found := committed[c.group]
		switch {
		case err != nil:
			c.answer <- offsetAnswer{err: err}
		case !found:
			c.answer <- offsetAnswer{err: ErrNotFound}
		default:
			c.answer <- offsetAnswer{offset: offset}
		}
	}
	for _, c := range b.seeks {
		c.answer <- offsetAnswer{offset: c.position, err: gs.writeSeek(ctx, c)}
	}
}

// writeCommits returns the offsets that the groups have then; those that were
// dropped have none.
func (gs *Groups) writeCommits(ctx context.Context, wanted map[int32]int64) (map[int32]int64, error) {
	if len(wanted) == 0 {
		return nil, nil
	}
	ids, positions := make([]int32, 0, len(wanted)), make([]int64, 0, len(wanted))
	for id, position := range wanted {
		ids, positions = append(ids, id), append(positions, position)
	}
	committed := make(map[int32]int64, len(wanted))
	err := gs.persist(ctx, "offsets not committed", commitOffsetsSQL, []any{ids, positions}, func(rows pgx.Rows) error {
		var id int32
		var offset int64
		var written bool
		_, err := pgx.ForEachRow(rows, []any{&id, &offset, &written}, func() error {
			committed[id] = offset
			if written {
				gs.unchecked++
			}
			return nil
		})
		return err
	})
	return committed, err
}

// writeSeek repeats a seek whose answer was lost, as if it came later.
func (gs *Groups) writeSeek(ctx context.Context, c offsetCall) error {
	var found bool
	err := gs.persist(ctx, "offset not set", seekOffsetSQL, []any{c.group, c.position}, scanOne(&found))
	gs.unchecked++
	if err == nil && !found {
		err = ErrNotFound
	}
	return err
}

// persist runs the query until PostgreSQL has answered it. What was committed
// without an answer is committed once more, which changes nothing.
func (gs *Groups) persist(ctx context.Context, complaint, sql string, args []any, collect func(pgx.Rows) error) error {
	for failed := 0; ; failed++ {
		err := gs.query(ctx, sql, args, collect)
		if err == nil {
			return nil
		}
		if pg.Retryable(err) {
			gs.cfg.Log.Warn(complaint+", trying again", "attempt", failed+1, "error", err)
			if pg.Backoff(ctx, failed) == nil {
				continue
			}
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%w: %w", ErrAbandoned, err)
		}
		gs.cfg.Log.Error(complaint, "error", err)
		return err
	}
}

func (gs *Groups) query(ctx context.Context, sql string, args []any, collect func(pgx.Rows) error) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	return inReadCommitted(ctx, gs.pool, sql, args, collect)
}

// rotate looks after the tables when enough was written. It gives up soon, and
// is tried again after some more commits: the tables grow meanwhile, and that
// is all.
func (gs *Groups) rotate(ctx context.Context) {
	if gs.unchecked <= gs.cfg.RotateRows/50 {
		return
	}
	gs.unchecked = 0
	var rotated bool
	err := gs.query(ctx, rotateOffsetsSQL, []any{gs.cfg.RotateRows}, scanOne(&rotated))
	if err == nil {
		err = gs.query(ctx, truncateOffsetsSQL, nil, func(rows pgx.Rows) error {
			rows.Close()
			return rows.Err()
		})
	}
	if err != nil && pg.Code(err) != pg.CodeLockNotAvailable && !errors.Is(err, context.Canceled) {
		gs.cfg.Log.Warn("offsets not rotated", "error", err)
	}
}
