package tidewire

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// delivery is a message of a queue with a lease.
type delivery struct {
	link     *link
	name     string // of the delivery on the wire
	position int64
	attempt  int
	key      string
	headers  map[string]any
	time     time.Time
	payload  []byte

	ctx    context.Context
	cancel context.CancelFunc
}

// workerCore is a worker without a codec.
type workerCore struct {
	c       *Client
	queue   string
	options WorkOptions
	handle  func(ctx context.Context, d *delivery) error

	once  sync.Once
	ready chan struct{}
	first error
	over  chan struct{} // closed when it has ended
	done  chan struct{} // closed when all handlers have returned, too
	err   error         // read it after done

	mu       sync.Mutex
	link     *link
	waiting  []*delivery
	active   map[string]*delivery // running and waiting, by name
	running  int
	settling int // acknowledgements and rejections without an answer
	acks     []*delivery
	flushing bool // a timer or an answer will send acks
	round    int  // of acknowledgements
	extender *time.Timer
	attempts int
	stopping bool
	ended    bool // the server gives it no more
	cause    error
	idle     chan struct{} // closed when nothing runs and nothing is being settled; nil if nobody waits
}

func newWorkerCore(c *Client, queue string, o WorkOptions) *workerCore {
	return &workerCore{c: c, queue: queue, options: o, ready: make(chan struct{}), over: make(chan struct{}), done: make(chan struct{}), active: map[string]*delivery{}}
}

func (w *workerCore) start(ctx context.Context) error {
	c := w.c
	c.mu.Lock()
	var err error
	if c.workers[w.queue] != nil {
		err = local("already_consuming", "this client works on the queue %q: use that worker, with more concurrency", w.queue)
	} else if err = c.addLocked(w); err == nil {
		c.workers[w.queue] = w
	}
	c.unlock()
	if err != nil {
		return err
	}
	return c.begun(ctx, w, w.ready, &w.first)
}

// attach consumes on l, unless the worker takes no more. The client holds its lock.
func (w *workerCore) attach(l *link) {
	w.mu.Lock()
	stopping := w.stopping
	if !stopping {
		w.link = l
	}
	w.mu.Unlock()
	if stopping {
		return
	}
	w.c.startOn(l, &request{kind: "consume", repeat: own, then: w.answered, encode: func(out *writer, _ *request) {
		out.text("queue", w.queue)
		out.number("credits", int64(w.options.Concurrency))
		out.yes("begin")
	}})
}

func (w *workerCore) answered(_ *answer, err error) {
	if err != nil {
		w.failed(err)
		return
	}
	w.mu.Lock()
	w.attempts = 0
	w.mu.Unlock()
	w.once.Do(func() { close(w.ready) })
}

// failed takes an error that has ended the consumer, or not let it begin.
func (w *workerCore) failed(err error) {
	if err == errDetached {
		return
	}
	var e *Error
	if !errors.As(err, &e) || !e.Retryable && e.Code != "token_expired" {
		w.c.remove(w)
		w.finish(err)
		return
	}
	w.mu.Lock()
	wait := pause(w.attempts)
	w.attempts++
	w.mu.Unlock()
	w.detach()
	w.c.reattach(w, max(wait, e.RetryAfter))
}

// detach loses all leases.
func (w *workerCore) detach() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.link = nil
	w.loseAll()
}

// loseAll ends the contexts of all handlers. The caller holds the lock.
func (w *workerCore) loseAll() {
	for _, d := range w.active {
		w.lose(d)
	}
}

// lose ends the context of a handler whose message is not its own any more. The caller holds the lock.
func (w *workerCore) lose(d *delivery) {
	if w.active[d.name] != d {
		return
	}
	delete(w.active, d.name)
	d.cancel()
	for i, other := range w.waiting {
		if other == d {
			w.waiting = append(w.waiting[:i], w.waiting[i+1:]...)
			return // nobody has seen it
		}
	}
}

// finish ends the worker: the server gives it no more. It does not wait for the handlers.
func (w *workerCore) finish(err error) {
	w.c.mu.Lock()
	if w.c.workers[w.queue] == w {
		delete(w.c.workers, w.queue)
	}
	w.c.mu.Unlock()
	w.once.Do(func() {
		w.first = err
		if err == nil {
			w.first = closedError(nil)
		}
		close(w.ready)
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		return
	}
	w.ended, w.cause = true, err
	close(w.over)
	w.loseAll()
	if w.extender != nil {
		w.extender.Stop()
	}
	w.rest()
}

// rest notes that something has ended. The caller holds the lock.
func (w *workerCore) rest() {
	if w.running > 0 {
		return
	}
	if w.settling == 0 && len(w.acks) == 0 && w.idle != nil {
		close(w.idle)
		w.idle = nil
	}
	if w.ended {
		select {
		case <-w.done:
		default:
			w.err = w.cause
			close(w.done)
		}
	}
}

// mostEarly is how many deliveries may wait beside those that the server may send: it sends a further one for each lease that has expired,
// of which the library knows only later.
const mostEarly = 1000

// take takes a delivery. After an error the server is not to be trusted.
func (w *workerCore) take(l *link, m *incoming) error {
	if len(m.delivery) == 0 || positioned(m) != nil {
		return errors.New("tidewire: the server has sent a delivery without a name or a position")
	}
	d := &delivery{
		link: l, name: string(m.delivery), position: m.position, attempt: m.attempt, key: string(m.key), headers: m.headers, time: m.stored(), payload: m.payload,
	}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopping || w.ended || w.link != l {
		return nil // cancel gives it back
	}
	if len(w.waiting) >= w.options.Concurrency+mostEarly {
		return fmt.Errorf("tidewire: the server has sent many more deliveries than the %d that it was allowed", w.options.Concurrency)
	}
	w.active[d.name] = d
	if w.extender == nil {
		w.extender = time.AfterFunc(beat(w.options.Lease), w.extend)
	}
	if w.running >= w.options.Concurrency {
		w.waiting = append(w.waiting, d)
		return nil
	}
	w.running++
	go w.run(d)
	return nil
}

// run calls the handler, for one delivery after the other.
func (w *workerCore) run(d *delivery) {
	for d != nil {
		if d.link.begin(w.queue, d.name) { // else it is lost, and nobody has seen it
			err := w.handle(d.ctx, d)
			w.log(d, err)
			w.handled(d, err)
		}
		d = w.following()
	}
}

// log tells of an error that no callback of the program hears of, and that the handler has not chosen. It belongs to no handler whose
// context has ended: then the message comes again anyway.
func (w *workerCore) log(d *delivery, err error) {
	var chosen *verdict
	if err == nil || w.options.Outcome != nil || d.ctx.Err() != nil || errors.As(err, &chosen) && !chosen.refused {
		return
	}
	w.c.opts.Logger.Error("tidewire: a handler has failed", "queue", w.queue, "position", d.position, "attempt", d.attempt, "error", err)
}

// handled settles a delivery.
func (w *workerCore) handled(d *delivery, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.active[d.name] != d:
		w.outcome(d, Lost)
	case err == nil:
		delete(w.active, d.name)
		w.acks = append(w.acks, d)
		w.acknowledge()
	default:
		delete(w.active, d.name)
		w.settling++
		go w.reject(d, err)
	}
	d.cancel()
}

// following returns the next delivery that waits.
func (w *workerCore) following() *delivery {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.waiting) > 0 && !w.stopping {
		next := w.waiting[0]
		w.waiting = w.waiting[1:]
		return next
	}
	w.running--
	w.rest()
	return nil
}

// outcome tells the program.
func (w *workerCore) outcome(d *delivery, o Outcome) {
	if f := w.options.Outcome; f != nil {
		w.c.calls.post(func() { f(d.position, o) })
	}
}
