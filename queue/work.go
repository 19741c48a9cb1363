package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"
)

// ErrDead makes a message a dead letter at once, if the error that a handler of Work returns wraps
// it.
var ErrDead = errors.New("queue: not to be tried again")

// WorkOptions configures Work.
type WorkOptions struct {
	// Concurrency is how many messages are handled at a time. Defaults to 10.
	Concurrency int
	// Visibility is the time after which a message is delivered to another consumer if this process hangs. Work extends it
	// while a handler runs. Defaults to 30 s.
	Visibility time.Duration
	// Grace is how long handlers may continue after the context of Work has ended. Then their contexts end. Defaults to 10 s.
	Grace time.Duration
	// Log receives a line for each message that could not be settled. Defaults to the Client's.
	Log *slog.Logger
}

func (o WorkOptions) withDefaults() WorkOptions {
	if o.Concurrency <= 0 {
		o.Concurrency = 10
	}
	if o.Visibility <= 0 {
		o.Visibility = 30 * time.Second
	}
	if o.Grace <= 0 {
		o.Grace = 10 * time.Second
	}
	return o
}

// Work consumes the queue with a handler, until ctx ends. It returns when the last handler has returned.
//
// A message is acknowledged when its handler returns nil. If the handler returns an error or panics, the message is delivered
// again later, as the queue's Options say; with an error that wraps ErrDead it becomes a dead letter. The context of a handler
// ends when the message is not its own any more, or Grace after the end of ctx; then the message is released, and handled again
// elsewhere. At-least-once delivery means that a handler may see a message twice.
//
// The error is nil after ctx has ended, or the Client was closed. Else it is ErrNotRunning if the Queue is not from a Client,
// ErrNotFound if the queue was dropped, or PostgreSQL's own error. While PostgreSQL is away Work waits.
func (q *Queue) Work(ctx context.Context, opts WorkOptions, handle func(context.Context, *Delivery) error) error {
	opts = opts.withDefaults()
	if q.client == nil {
		return fmt.Errorf("work on %q: %w", q.name, ErrNotRunning)
	}
	ctx, end, err := q.client.begin(ctx)
	if err != nil {
		return fmt.Errorf("work on %q: %w", q.name, err)
	}
	defer end()
	c, err := q.Consume(ConsumerOptions{Credits: opts.Concurrency, Visibility: opts.Visibility})
	if err != nil {
		return err
	}
	defer c.Close() // releases what was not settled
	w := &work{opts: opts, handle: handle, log: cmp.Or(opts.Log, q.client.cfg.Log).With("queue", q.Name())}
	return w.run(ctx, c)
}

// work is one call of Work.
type work struct {
	opts   WorkOptions
	handle func(context.Context, *Delivery) error
	log    *slog.Logger

	life    context.Context // of the handlers
	running sync.WaitGroup
}

// run passes deliveries to the handler until ctx or the Node ends. It returns why the Node has ended.
func (w *work) run(ctx context.Context, c *Consumer) error {
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	w.life = life
	defer context.AfterFunc(ctx, func() {
		timer := time.AfterFunc(w.opts.Grace, end)
		context.AfterFunc(life, func() { timer.Stop() })
	})()
	defer w.running.Wait()
	for {
		deliveries, err := c.Receive(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		for _, d := range deliveries {
			w.running.Go(func() { w.do(d) })
		}
	}
}

// do handles one delivery and settles it.
func (w *work) do(d *Delivery) {
	ctx, cancel := context.WithCancelCause(w.life)
	defer cancel(nil)
	var extending sync.WaitGroup
	done := make(chan struct{})
	extending.Go(func() { w.extend(d, done, cancel) })
	err := w.call(ctx, d)
	close(done)
	extending.Wait()
	if err = w.settle(d, err); err != nil && !errors.Is(err, ErrLeaseLost) && w.life.Err() == nil {
		w.log.Warn("a message was handled, and is delivered again: it could not be settled", "position", d.Position, "error", err)
	}
}

// call calls the handler, whose panic is an error.
func (w *work) call(ctx context.Context, d *Delivery) (err error) {
	defer func() {
		if r := recover(); r != nil {
			w.log.Error("the handler of a message panicked", "position", d.Position, "panic", r, "stack", string(debug.Stack()))
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	return w.handle(ctx, d)
}

// settle acknowledges or nacks a message. A handler that was ended by the stop has not failed: its message is not settled here,
// but released.
func (w *work) settle(d *Delivery, err error) error {
	switch {
	case err == nil:
		return d.Ack(w.life)
	case w.life.Err() != nil:
		return nil
	}
	return d.Nack(w.life, NackOptions{Reason: err.Error(), Dead: errors.Is(err, ErrDead)})
}

// extend is a heartbeat: it extends a delivery until its handler is done, and ends the handler when the delivery
// is lost.
func (w *work) extend(d *Delivery, done <-chan struct{}, cancel context.CancelCauseFunc) {
	tick := time.NewTicker(max(w.opts.Visibility/3, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-done:
			return
		}
		if err := d.Extend(w.opts.Visibility); err != nil {
			cancel(err)
			return
		}
	}
}
