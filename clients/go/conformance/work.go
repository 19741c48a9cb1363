package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/tidewire/tidewire/clients/go"
)

// worker is a program that works on a queue.
type worker struct {
	*tidewire.Worker

	mu   sync.Mutex
	jobs int
	hold chan struct{} // closed when the handlers that hold return
}

// release lets all handlers that hold return.
func (w *worker) release() {
	w.mu.Lock()
	defer w.mu.Unlock()
	close(w.hold)
	w.hold = make(chan struct{})
}

// begin returns what the handler of the next job does, and what it holds for.
func (w *worker) begin(handle any) (string, chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.jobs++
	switch h := handle.(type) {
	case string:
		return h, w.hold
	case []any:
		text, _ := h[min(w.jobs, len(h))-1].(string)
		return text, w.hold
	}
	return "ack", w.hold
}

func (r *runner) work(c *command) (fields, error) {
	w := &worker{hold: make(chan struct{})}
	options := []tidewire.WorkOption{tidewire.OnOutcome(func(position int64, o tidewire.Outcome) {
		r.event(c.As, "done", fields{"position": position, "outcome": o})
	})}
	if c.Concurrent > 0 {
		options = append(options, tidewire.Concurrency(c.Concurrent))
	}
	if c.LeaseMS > 0 {
		options = append(options, tidewire.Lease(ms(c.LeaseMS)))
	}
	r.mu.Lock()
	r.workers[c.As] = w
	r.mu.Unlock()
	q := tidewire.QueueOf[any](r.client(c.Client), c.Queue)
	started, err := q.Start(context.Background(), func(ctx context.Context, j *tidewire.Job[any]) error {
		return r.handle(ctx, c, w, j)
	}, options...)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	w.Worker = started
	r.mu.Unlock()
	go func() {
		<-started.Done()
		r.event(c.As, "end", fields{"error": describe(started.Err())})
	}()
	return fields{}, nil
}

func (r *runner) handle(ctx context.Context, c *command, w *worker, j *tidewire.Job[any]) error {
	do, hold := w.begin(c.Handle)
	r.event(c.As, "job", fields{"position": j.Position, "attempt": j.Attempt, "value": j.Value})
	defer watch(ctx, func() { r.event(c.As, "cancelled", fields{"position": j.Position}) })()
	time.Sleep(ms(c.WorkMS))
	switch do {
	case "fail":
		return errors.New("the handler fails")
	case "retry":
		return tidewire.RetryAfter(ms(c.RetryMS), "later")
	case "dead":
		return tidewire.Dead("never")
	case "hold":
		select {
		case <-hold:
		case <-ctx.Done():
		}
	}
	return nil
}

// watch calls f when ctx ends. If ctx has ended, what it returns waits until f has been called. What waits for ctx may go on before the function
// of AfterFunc has begun, and then that is not called any more.
func watch(ctx context.Context, f func()) (end func()) {
	told := make(chan struct{})
	tell := func() {
		f()
		close(told)
	}
	stop := context.AfterFunc(ctx, tell)
	return func() {
		switch {
		case !stop():
			<-told
		case ctx.Err() != nil:
			tell()
		}
	}
}

func (r *runner) stop(c *command) (fields, error) {
	ctx := context.Background()
	if c.DrainMS != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, ms(*c.DrainMS))
		defer cancel()
	}
	return fields{}, r.worker(c.On).Stop(ctx)
}
