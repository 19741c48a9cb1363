package tidewire

import (
	"context"
	"time"
)

// handlerGrace is how long handlers may run after their contexts have ended. Nobody waits longer for them.
const handlerGrace = time.Second

// stop ends the worker.
func (w *workerCore) stop(ctx context.Context) error {
	w.mu.Lock()
	w.stopping = true
	l := w.link
	w.mu.Unlock()
	w.withdraw(l)
	timer := time.NewTimer(w.options.Drain)
	defer timer.Stop()
	if !w.drained(ctx, timer.C) {
		w.mu.Lock()
		w.loseAll()
		w.mu.Unlock()
	}
	grace, cancel := context.WithTimeout(context.Background(), handlerGrace)
	defer cancel()
	w.c.remove(w)
	w.giveBack(grace, l)
	w.finish(nil)
	return w.wait(grace)
}

// wait waits for the handlers of a worker that has ended, until grace ends. It returns why the worker has ended, or how many handlers still run.
func (w *workerCore) wait(grace context.Context) error {
	select {
	case <-w.done:
		return w.err
	case <-grace.Done():
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cause != nil || w.running == 0 {
		return w.cause
	}
	return runningError(w.running)
}

func runningError(n int) error {
	return local("still_running", "%d handlers still run, %v after their contexts have ended: let them return when their context ends", n, handlerGrace)
}

// drained waits until all handlers have returned, and what they have done is recorded.
func (w *workerCore) drained(ctx context.Context, end <-chan time.Time) bool {
	w.mu.Lock()
	if w.running == 0 && w.settling == 0 && len(w.acks) == 0 {
		w.mu.Unlock()
		return true
	}
	idle := w.idle
	if idle == nil {
		idle = make(chan struct{})
		w.idle = idle
	}
	w.mu.Unlock()
	select {
	case <-idle:
		return true
	case <-end:
	case <-ctx.Done():
	}
	return false
}

// withdraw takes the credits back, so that nothing more comes.
func (w *workerCore) withdraw(l *link) {
	if l == nil {
		return
	}
	w.c.mu.Lock()
	defer w.c.unlock()
	if w.c.link == l {
		w.c.startOn(l, &request{kind: "credit", repeat: own, encode: func(out *writer, _ *request) {
			out.text("queue", w.queue)
			out.number("n", -int64(w.options.Concurrency))
		}})
	}
}

// giveBack ends the consumer, and waits for the answer, until grace ends.
func (w *workerCore) giveBack(grace context.Context, l *link) {
	r := w.cancel(l)
	if r == nil {
		return
	}
	select {
	case <-r.done:
	case <-l.over:
	case <-grace.Done():
	}
}

// quit ends the consumer, and does not wait.
func (w *workerCore) quit() {
	w.mu.Lock()
	l := w.link
	w.mu.Unlock()
	w.cancel(l)
}

// cancel ends the consumer on l: what it has not settled goes back to the queue. It returns nil if that connection has ended.
func (w *workerCore) cancel(l *link) *request {
	w.c.mu.Lock()
	defer w.c.unlock()
	if l == nil || w.c.link != l {
		return nil
	}
	r := &request{kind: "cancel", repeat: own, encode: func(out *writer, _ *request) { out.text("queue", w.queue) }}
	w.c.startOn(l, r)
	return r
}
