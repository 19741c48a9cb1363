package queue

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/tidewire/tidewire/internal/pg"
)

// ReplaceDead removes the dead letter at a position and enqueues a message, both or neither: in one transaction, which is replicated as
// configured when it returns. It reports whether there was such a dead letter; without one it enqueues nothing. The message gets a new position,
// and its attempts count from 1 on. After an error it is not known whether this was done. Other errors: ErrInvalid, of EnqueueTx.
func (q *Queue) ReplaceDead(ctx context.Context, position int64, with Message) (replaced bool, err error) {
	i, inner := q.inward(position)
	if i < 0 {
		return false, nil
	}
	err = pgx.BeginTxFunc(ctx, q.pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, pg.WriterSettings(changePatience)); err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, purgePositionsSQL, q.members[i].id, []int64{inner})
		if replaced = tag.RowsAffected() > 0; err != nil || !replaced {
			return err
		}
		return q.EnqueueTx(ctx, tx, with)
	})
	if err == nil && replaced {
		err = replicated(ctx, q.pool) // a COMMIT says in a warning alone that its wait for standbys was canceled
	}
	if err != nil {
		return false, q.explain("replace a dead letter of", err)
	}
	q.Notify()
	return replaced, nil
}
