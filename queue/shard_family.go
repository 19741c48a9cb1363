package queue

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/pg"
	"github.com/tidewire/tidewire/stream"
)

const (
	// codeOptions is raised if another queue or stream has the name of a member.
	codeOptions = "TW006"
	// codeForeignKey: a stream was dropped before it became a queue.
	codeForeignKey = "23503"
)

// memberName is the name of a member of a family, and of its stream.
func memberName(family string, index int) string { return fmt.Sprintf("%s/%d", family, index) }

// ensureFamily makes a queue with priorities or partitions: first the streams,
// which are not found as a queue yet, and then all queues in one transaction.
func ensureFamily(ctx context.Context, pool *pgxpool.Pool, name string, opts Options) (*Queue, error) {
	made := false
	for failed := 0; ; failed++ {
		q, err := lookupFamily(ctx, pool, name)
		if err == nil && !made {
			err = replicated(ctx, pool)
		}
		if !errors.Is(err, ErrNotFound) {
			return q, err
		}
		if err = endDrop(ctx, pool, droppingSQL, name); err != nil && !errors.Is(err, ErrNotFound) { // finish a Drop that was interrupted
			return nil, err
		}
		err = makeFamily(ctx, pool, name, opts)
		if err != nil && pg.Code(err) != codeForeignKey {
			return nil, err
		}
		made = err == nil
		if failed > 0 { // other callers make and drop it
			if err := pg.Backoff(ctx, failed); err != nil {
				return nil, err
			}
		}
	}
}

func makeFamily(ctx context.Context, pool *pgxpool.Pool, name string, opts Options) error {
	_, err := stream.Lookup(ctx, pool, name)
	if err == nil {
		return inTheWay(ctx, pool, name, opts)
	}
	if !errors.Is(err, stream.ErrNotFound) {
		return err
	}
	var ids []int32
	for i := range opts.Priorities + opts.Partitions {
		s, err := ensureStream(ctx, pool, memberName(name, i))
		if err != nil {
			return err
		}
		ids = append(ids, s.ID())
	}
	args := []any{name, opts.Priorities, opts.Partitions, ids, opts.MaxAttempts, opts.RetryMin, opts.RetryMax}
	err = inWriter(ctx, pool, ensureFamilySQL, args, func(row pgx.Row) error { return row.Scan(nil) })
	return explainEnsure(err)
}

// inTheWay returns the error for a family whose name is that of an existing stream, perhaps a
// queue's.
func inTheWay(ctx context.Context, pool *pgxpool.Pool, name string, opts Options) error {
	q, err := lookupOne(ctx, pool, name)
	switch {
	case err == nil:
		return q.opts.differ(opts)
	case errors.Is(err, ErrInvalid):
		return fmt.Errorf("%w: %w", ErrExists, err)
	case errors.Is(err, ErrNotFound):
		return fmt.Errorf("%w: a stream has that name", ErrExists)
	}
	return err
}

// lookupFamily returns the queue with priorities or partitions of that name, or
// ErrNotFound.
func lookupFamily(ctx context.Context, pool *pgxpool.Pool, name string) (*Queue, error) {
	q := newQueue(pool, name)
	rows, err := pool.Query(ctx, lookupFamilySQL, name)
	if err != nil {
		return nil, err
	}
	var member string
	var names []string
	var id int32
	var ids []int32
	o := &q.opts
	_, err = pgx.ForEachRow(rows, []any{&member, &id, &o.MaxAttempts, &o.RetryMin, &o.RetryMax, &o.Priorities, &o.Partitions}, func() error {
		names, ids = append(names, member), append(ids, id)
		return nil
	})
	if err != nil {
		return nil, err
	}
	for i, member := range names {
		s, err := stream.Lookup(ctx, pool, member)
		if errors.Is(err, stream.ErrNotFound) || err == nil && s.ID() != ids[i] {
			return nil, ErrNotFound // it was dropped meanwhile
		}
		if err != nil {
			return nil, err
		}
		q.members = append(q.members, newShard(pool, s, i))
	}
	if len(q.members) == 0 {
		return nil, ErrNotFound
	}
	return q, nil
}

func dropFamily(ctx context.Context, pool *pgxpool.Pool, name string) error {
	return endDrop(ctx, pool, beginDropSQL, name)
}

// endDrop drops the family that the query finds by name, one queue at a time:
// all in one transaction may need more locks than PostgreSQL has room for.
func endDrop(ctx context.Context, pool *pgxpool.Pool, sql, name string) error {
	var id int32
	err := dropStep(ctx, pool, &id, sql, name)
	if errors.Is(err, pgx.ErrNoRows) {
		return ErrNotFound
	}
	if err != nil {
		return err
	}
	for {
		var member string
		err := dropStep(ctx, pool, &member, lastMemberSQL, id)
		if errors.Is(err, pgx.ErrNoRows) {
			if err = dropStep(ctx, pool, &id, endDropSQL, id); errors.Is(err, pgx.ErrNoRows) { // another caller was first
				return nil
			}
			return err
		}
		if err == nil {
			err = dropOne(ctx, pool, member, &id)
		}
		if err != nil && !errors.Is(err, ErrNotFound) { // another caller drops it too
			return err
		}
	}
}

// dropStep runs a query for one value. While others hold a lock that it needs, it waits, until ctx ends.
func dropStep(ctx context.Context, pool *pgxpool.Pool, dst any, sql string, args ...any) error {
	for failed := 0; ; failed++ {
		err := inReadCommitted(ctx, pool, ensurePatience, func(b *pgx.Batch) {
			b.Queue(sql, args...).QueryRow(func(row pgx.Row) error { return row.Scan(dst) })
		})
		if pg.Code(err) != pg.CodeLockNotAvailable || pg.Backoff(ctx, failed) != nil {
			return err
		}
	}
}
