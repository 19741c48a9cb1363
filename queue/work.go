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

// ErrDead makes a message a dead letter at once, if what a handler of Work returns wraps it.
var ErrDead = errors.New("queue: not to be tried again")

// WorkOptions configures Work.
type WorkOptions struct {
	// Concurrency is how many messages are handled at a time. Defaults to 10.
	Concurrency int
	// Visibility is after which time a message is handed to another consumer if this process hangs. While a handler runs, it is
	// extended. Defaults to 30 s.
	Visibility time.Duration
	// Grace is for how long handlers may run on after the context of Work has ended. Then their contexts end. Defaults to 10 s.
	Grace time.Duration
	// Log gets a line where something could not be settled. Defaults to the Client's.
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
// A message is acknowledged when its handler returns nil. With an error, or after a panic, it is tried again later, as the queue's Options say; with an error that wraps
// ErrDead it becomes a dead letter. The context of a handler ends when the message is not its own any more, or Grace after the
// end of ctx; then the message is given back, and handled again elsewhere. At-least-once delivery means that a handler may see a message
// twice.
//
// The error is nil after the end of ctx, or of the Client; else ErrNotRunning, for a Queue that is not a Client's; ErrNotFound, for the queue was
// dropped; or PostgreSQL's own. While PostgreSQL is away Work waits.
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
	defer c.Close() // gives back what was not settled
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

// run gives deliveries to the handler until ctx ends, or the Node does, and returns why that has ended.
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

// settle says what became of a message, unless its handler was ended by the stop: then it is given back, and that is no failure of it.
func (w *work) settle(d *Delivery, err error) error {
	switch {
	case err == nil:
		return d.Ack(w.life)
	case w.life.Err() != nil:
		return nil
	}
	return d.Nack(w.life, NackOptions{Reason: err.Error(), Dead: errors.Is(err, ErrDead)})
}

// extend keeps a delivery until its handler is done, or ends the handler when the delivery is lost: a heartbeat.
func (w *work) extend(d *Delivery, done <-chan struct{}, cancel context.CancelCauseFunc) {
	tick := time.NewTicker(w.opts.Visibility / 3)
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
