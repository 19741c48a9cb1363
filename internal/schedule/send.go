package schedule

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/tidewire/tidewire/internal/pg"
	"github.com/tidewire/tidewire/queue"
	"github.com/tidewire/tidewire/stream"
)

// target names the queue or stream of a schedule: one of them is empty.
type target struct{ queue, stream string }

func targetOf(w *row) target { return target{w.Queue, w.Stream} }

// sender writes messages to a target in a transaction.
type sender interface {
	send(ctx context.Context, tx pgx.Tx, rows []*row, msgs []stream.Message) error
	streams() []*stream.Stream
}

type toStream struct{ *stream.Stream }

func (t toStream) send(ctx context.Context, tx pgx.Tx, _ []*row, msgs []stream.Message) error {
	return t.AppendTx(ctx, tx, msgs...)
}

func (t toStream) streams() []*stream.Stream {
	if t.Partitions() == 0 {
		return []*stream.Stream{t.Stream}
	}
	var all []*stream.Stream
	for i := range t.Partitions() {
		all = append(all, t.Partition(i))
	}
	return all
}

type toQueue struct{ *queue.Queue }

func (t toQueue) send(ctx context.Context, tx pgx.Tx, rows []*row, msgs []stream.Message) error {
	out := make([]queue.Message, len(msgs))
	for i, m := range msgs {
		out[i] = queue.Message{Key: m.Key, Headers: m.Headers, Payload: m.Payload, Priority: rows[i].Priority}
	}
	return t.EnqueueTx(ctx, tx, out...)
}

func (t toQueue) streams() []*stream.Stream { return t.Streams() }

// toNothing is a target that cannot be written to, and why.
type toNothing struct{ err error }

func (t toNothing) send(context.Context, pgx.Tx, []*row, []stream.Message) error { return t.err }
func (t toNothing) streams() []*stream.Stream                                    { return nil }

// lookUp finds the targets, before the transaction: it needs a connection, and one that holds a connection must not wait for another.
func (r *Runner) lookUp(ctx context.Context, all []due) (map[target]sender, error) {
	targets := make(map[target]sender)
	for _, d := range all {
		if targets[d.to] != nil {
			continue
		}
		to, err := r.find1(ctx, d.to)
		switch {
		case err == nil:
			targets[d.to] = to
		case permanent(err):
			targets[d.to] = toNothing{err}
		default:
			return nil, err
		}
	}
	return targets, nil
}

// permanent reports whether only a change of the schedule or of its target helps.
func permanent(err error) bool {
	for _, is := range []error{queue.ErrNotFound, queue.ErrInvalid, queue.ErrCrossPartition, stream.ErrNotFound, stream.ErrInvalid, errQueueStream} {
		if errors.Is(err, is) {
			return true
		}
	}
	return pg.Code(err) != "" && !pg.Retryable(err)
}

var errQueueStream = errors.New("the stream holds the messages of a queue")

func (r *Runner) find1(ctx context.Context, to target) (sender, error) {
	if to.queue != "" {
		q, err := queue.Lookup(ctx, r.pool, to.queue)
		return toQueue{q}, err
	}
	s, err := stream.Lookup(ctx, r.pool, to.stream)
	if err != nil {
		return nil, err
	}
	owned, err := queue.OwnsStream(ctx, r.pool, to.stream)
	if err == nil && owned {
		err = fmt.Errorf("stream %q: %w", to.stream, errQueueStream)
	}
	return toStream{s}, err
}

// send writes the messages, those of each target together and in the order of the rows. If that fails, it writes each one alone, so that one that cannot be
// written does not hold up the others.
func send(ctx context.Context, tx pgx.Tx, rows []*row, targets map[target]sender) error {
	byTarget := make(map[target][]*row)
	var order []target
	for _, w := range rows {
		if w.err != nil || w.emit.IsZero() {
			continue
		}
		to := targetOf(w)
		if byTarget[to] == nil {
			order = append(order, to)
		}
		byTarget[to] = append(byTarget[to], w)
	}
	for _, to := range order {
		some := byTarget[to]
		if targets[to] == nil { // it was given another target since it was found
			for _, w := range some {
				w.err = errors.New("the target was changed a moment ago")
			}
			continue
		}
		err := sendSome(ctx, tx, targets[to], some)
		if err == nil {
			continue
		}
		if !permanent(err) {
			return err
		}
		for _, w := range some {
			if w.err = sendSome(ctx, tx, targets[to], []*row{w}); w.err != nil && !permanent(w.err) {
				return w.err
			}
		}
	}
	return nil
}

// sendSome writes messages in a savepoint, all or none.
func sendSome(ctx context.Context, tx pgx.Tx, to sender, some []*row) error {
	msgs := make([]stream.Message, len(some))
	for i, w := range some {
		var err error
		if msgs[i], err = w.message(); err != nil {
			return fmt.Errorf("%w headers: %w", stream.ErrInvalid, err)
		}
	}
	return pgx.BeginFunc(ctx, tx, func(inner pgx.Tx) error { return to.send(ctx, inner, some, msgs) })
}
