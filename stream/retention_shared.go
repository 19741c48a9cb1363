package stream

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Bounds of what a RetentionWorker does with shared streams at a time.
const (
	// dueStreams is the most streams with something to drop that one lookup returns.
	dueStreams = 1000
	// dueMessages is the most messages of one stream that a lookup finds. The next lookup finds
	// the others.
	dueMessages = 1000
	// dropMessages is about how many messages one transaction deletes; the messages found for
	// one stream are not split.
	dropMessages = 5000
)

// due is a shared stream with messages to be dropped, or to be moved.
type due struct {
	stream   int32
	upto     *int64 // nil if there is nothing to drop
	messages int
	large    bool // it needs its own tables
	policy   string
}

// keepShared applies the retention of all shared streams once: first the policies without
// Consumed, then those with it.
func (k *RetentionWorker) keepShared(ctx context.Context) error {
	return errors.Join(k.keepSharedIf(ctx, false), k.keepSharedIf(ctx, true))
}

// keepSharedIf applies the policies with Consumed, or those without. It repeats this
// for streams with more to drop.
func (k *RetentionWorker) keepSharedIf(ctx context.Context, consumed bool) error {
	more, dropped, err := k.dropDue(ctx, consumed, nil)
	for len(more) > 0 && err == nil {
		var n int64
		more, n, err = k.dropDue(ctx, consumed, more)
		dropped += n
	}
	if dropped > 0 {
		k.cfg.Log.Info("messages of shared streams dropped", "messages", dropped)
	}
	return err
}

// dropDue checks once all shared streams with such policies, or only the given ones, and drops the due
// messages. It returns the streams that may have more.
func (k *RetentionWorker) dropDue(ctx context.Context, consumed bool, only []int32) (more []int32, dropped int64, err error) {
	for after, last := int32(0), false; !last; {
		found, lookErr := k.look(ctx, consumed, after, only)
		if lookErr != nil {
			return nil, dropped, errors.Join(err, lookErr)
		}
		for from := 0; from < len(found); {
			to := from + dropEnd(found[from:])
			again, n, dropErr := k.dropSome(ctx, found[from:to])
			more, dropped, err = append(more, again...), dropped+n, errors.Join(err, dropErr)
			from = to
		}
		if last = len(found) < dueStreams; !last {
			after = found[len(found)-1].stream
		}
	}
	return more, dropped, err
}

// dropEnd returns how many of the streams, at least one, fit in one transaction of at most
// dropMessages.
func dropEnd(found []due) int {
	messages := found[0].messages
	for i, d := range found[1:] {
		if messages += d.messages; messages > dropMessages {
			return i + 1
		}
	}
	return len(found)
}

// look returns shared streams with something to drop, with IDs after a given one; only limits
// them to the given ones if it is not nil.
func (k *RetentionWorker) look(ctx context.Context, consumed bool, after int32, only []int32) (found []due, err error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	err = stepRows(ctx, k.pool, sealWait, func(rows pgx.Rows) error {
		found, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (d due, err error) {
			return d, row.Scan(&d.stream, &d.upto, &d.messages, &d.large, &d.policy)
		})
		return err
	}, dueSharedSQL, consumed, after, only, dueStreams, dueMessages)
	if err != nil {
		return nil, fmt.Errorf("look for messages: %w", err)
	}
	return found, nil
}

// dropSome drops the due messages of some streams. It returns the streams that may have more.
func (k *RetentionWorker) dropSome(ctx context.Context, found []due) (more []int32, dropped int64, err error) {
	var ids []int32
	var uptos []int64
	var policies []string
	window := make(map[int32]bool)
	for _, d := range found {
		if d.large {
			k.moveLarge(ctx, d.stream)
		}
		if d.upto != nil {
			ids, uptos, policies = append(ids, d.stream), append(uptos, *d.upto), append(policies, d.policy)
			window[d.stream] = d.messages == dueMessages
		}
	}
	if len(ids) == 0 {
		return nil, 0, nil
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	err = stepRows(ctx, k.pool, sealWait, func(rows pgx.Rows) error {
		var id int32
		var n int64
		_, err := pgx.ForEachRow(rows, []any{&id, &n}, func() error {
			dropped += n
			if window[id] {
				more = append(more, id)
			}
			return nil
		})
		return err
	}, dropSharedSQL, ids, uptos, policies)
	if err != nil {
		return nil, 0, fmt.Errorf("drop messages: %w", err)
	}
	return more, dropped, nil
}

// moveLarge moves a shared stream to its own tables. If that fails, the stream stays in the
// shared table.
func (k *RetentionWorker) moveLarge(ctx context.Context, id int32) {
	ctx, cancel := context.WithTimeout(ctx, moveTimeout)
	defer cancel()
	err := stepRows(ctx, k.pool, sealWait, func(rows pgx.Rows) error {
		rows.Close()
		return rows.Err()
	}, moveSharedSQL, id)
	if err != nil && ctx.Err() == nil {
		k.cfg.Log.Warn("large stream not moved to its own tables", "stream", id, "error", err)
	}
}
