package queue

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Changes are new Options of a queue; those that are 0 stay as they are. Priorities and Partitions cannot be changed.
type Changes struct {
	MaxAttempts        int
	RetryMin, RetryMax time.Duration
}

// Alter changes the options of the queue, and returns all of them. Running Nodes, of all processes, take the new ones
// when they next poll: within NodeConfig.PollJournal and a quarter of it. Pauses that have begun stay as they are. A
// message that was delivered at least MaxAttempts times becomes a dead letter when it would next be delivered; dead
// letters stay dead. If RetryMax would be less than RetryMin, it becomes RetryMin.
//
// From then on Ensure wants the new options: programs that call it with the old ones get ErrExists.
//
// Errors: ErrInvalid, ErrNotFound, and PostgreSQL's own.
func (q *Queue) Alter(ctx context.Context, c Changes) (Options, error) {
	if err := c.validate(); err != nil {
		return Options{}, q.explain("alter", err)
	}
	ids := make([]int32, len(q.members))
	for i, m := range q.members {
		ids[i] = m.id
	}
	opts, rows := q.Options(), 0
	err := inReadCommitted(ctx, q.pool, ensurePatience, func(b *pgx.Batch) {
		b.Queue(alterSQL, ids, c.MaxAttempts, c.RetryMin, c.RetryMax).Query(func(found pgx.Rows) error {
			_, err := pgx.ForEachRow(found, []any{&opts.MaxAttempts, &opts.RetryMin, &opts.RetryMax}, func() error { rows++; return nil })
			return err
		})
		b.Queue(waitIfUnwrittenSQL)
	})
	if err == nil && rows == 0 {
		err = ErrNotFound
	}
	if err != nil {
		return Options{}, q.explain("alter", err)
	}
	q.altered.Store(&opts)
	return opts, nil
}

func (c Changes) validate() error {
	switch {
	case c.MaxAttempts < 0 || c.MaxAttempts > MaxAttempts:
		return fmt.Errorf("%w attempts: %d, want 1 to %d, or 0 for no change", ErrInvalid, c.MaxAttempts, MaxAttempts)
	case !validChange(c.RetryMin):
		return fmt.Errorf("%w first retry pause: %v, want 1 us to %v, or 0 for no change", ErrInvalid, c.RetryMin, MaxRetry)
	case !validChange(c.RetryMax):
		return fmt.Errorf("%w longest retry pause: %v, want 1 us to %v, or 0 for no change", ErrInvalid, c.RetryMax, MaxRetry)
	}
	return nil
}

// validChange reports whether a pause is 0, or one that PostgreSQL's resolution of an interval can express.
func validChange(pause time.Duration) bool {
	return pause == 0 || pause >= time.Microsecond && pause <= MaxRetry
}

// nowHas applies the options that the database has now.
func (q *Queue) nowHas(maxAttempts int, retryMin, retryMax time.Duration) {
	opts := q.Options()
	if opts.MaxAttempts == maxAttempts && opts.RetryMin == retryMin && opts.RetryMax == retryMax {
		return
	}
	opts.MaxAttempts, opts.RetryMin, opts.RetryMax = maxAttempts, retryMin, retryMax
	q.altered.Store(&opts)
}
