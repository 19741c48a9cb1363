package queue

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tidewire/tidewire/stream"
)

// DeadLetter is a message that is not delivered again.
type DeadLetter struct {
	stream.Message
	Attempts int    // how often it was delivered
	Reason   string // of the last nack
	// Died is when it became a dead letter, by PostgreSQL's clock. For those of earlier versions it may be later, by
	// up to Options.RetryMax.
	Died time.Time
}

// DeadLetters returns the dead letters after position after, at most n, in
// order.
func (q *Queue) DeadLetters(ctx context.Context, after int64, n int) ([]DeadLetter, error) {
	var all []DeadLetter
	for i, m := range q.members {
		from := (after - int64(i)) / int64(len(q.members))
		letters, err := m.deadLetters(ctx, from, n)
		if err != nil {
			return nil, err
		}
		for _, d := range letters {
			d.Position = q.outward(i, d.Position)
			all = append(all, d)
		}
	}
	slices.SortFunc(all, func(a, b DeadLetter) int { return cmp.Compare(a.Position, b.Position) })
	return all[:min(n, len(all))], nil
}

func (q *shard) deadLetters(ctx context.Context, after int64, n int) ([]DeadLetter, error) {
	letters, err := q.deadRows(ctx, after, n)
	if err != nil {
		return nil, err
	}
	for i := range letters {
		if err := q.readLetter(ctx, &letters[i]); err != nil {
			return nil, err
		}
	}
	return letters, nil
}

// deadRows returns dead letters without their messages.
func (q *shard) deadRows(ctx context.Context, after int64, n int) ([]DeadLetter, error) {
	rows, err := q.pool.Query(ctx, deadSQL, q.id, after, n)
	if err != nil {
		return nil, q.explain("read dead letters of", err)
	}
	letters, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (d DeadLetter, err error) {
		return d, row.Scan(&d.Position, &d.Attempts, &d.Reason, &d.Died)
	})
	if err != nil {
		return nil, q.explain("read dead letters of", err)
	}
	return letters, nil
}

// readLetter reads the message of a dead letter; if it is gone, only its position is known.
func (q *shard) readLetter(ctx context.Context, d *DeadLetter) error {
	msgs, err := q.readFrom(ctx, d.Position-1, 1, readBytes)
	if err != nil {
		return q.explain("read dead letters of", err)
	}
	if len(msgs) == 1 && msgs[0].Position == d.Position {
		d.Message = msgs[0]
	}
	return nil
}

// Redrive makes the dead letters at these positions, or all if none are given,
// ready for delivery, with their attempts reset to zero. It returns how many
// there were. In a queue that keeps the order of keys, each goes before the
// waiting messages of its key, and after those that were delivered since it
// became a dead letter.
func (q *Queue) Redrive(ctx context.Context, positions ...int64) (redriven int64, err error) {
	byMember := q.byMember(positions)
	for i, m := range q.members {
		if len(positions) > 0 && len(byMember[i]) == 0 {
			continue
		}
		n, err := m.redrive(ctx, byMember[i])
		if redriven += n; err != nil {
			return redriven, err
		}
	}
	return redriven, nil
}

// byMember returns the positions in the streams of the members.
func (q *Queue) byMember(positions []int64) [][]int64 {
	all := make([][]int64, len(q.members))
	for _, p := range positions {
		if i, inner := q.inward(p); i >= 0 {
			all[i] = append(all[i], inner)
		}
	}
	return all
}

func (q *shard) redrive(ctx context.Context, positions []int64) (int64, error) {
	sql, args := redriveAllSQL, []any{q.id}
	if len(positions) > 0 {
		sql, args = redriveSQL, append(args, positions)
	}
	n, err := q.change(ctx, sql, args...)
	if err != nil {
		return 0, q.explain("redrive", err)
	}
	return n, nil
}

// change runs a statement on deferred messages, and returns the number of rows that it changed.
func (q *shard) change(ctx context.Context, sql string, args ...any) (n int64, err error) {
	err = inReadCommitted(ctx, q.pool, changePatience, func(b *pgx.Batch) {
		b.Queue(sql, args...).Exec(func(tag pgconn.CommandTag) error { n = tag.RowsAffected(); return nil })
		b.Queue(waitIfUnwrittenSQL)
	})
	return n, err
}

// changePatience bounds each wait of change for nodes that write the same rows.
const changePatience = time.Minute
