package tidewire

import (
	"context"
	"errors"
	"time"
)

// Queue is a queue of the server, whose messages have values of the type T.
type Queue[T any] struct {
	c     *Client
	name  string
	codec Codec[T]
}

// Queue returns the queue of that name, for payloads as bytes. It asks the server nothing.
func (c *Client) Queue(name string) *Queue[[]byte] { return &Queue[[]byte]{c, name, BytesCodec{}} }

// QueueOf returns the queue of that name, for values as JSON.
func QueueOf[T any](c *Client, name string) *Queue[T] { return &Queue[T]{c, name, JSONCodec[T]{}} }

// WithCodec returns the same queue with another codec.
func (q *Queue[T]) WithCodec(codec Codec[T]) *Queue[T] { return &Queue[T]{q.c, q.name, codec} }

// Name returns the name of the queue.
func (q *Queue[T]) Name() string { return q.name }

// Enqueue stores a message. It returns when the message is committed. It is sent again after a reconnect, and stored once.
func (q *Queue[T]) Enqueue(ctx context.Context, value T, options ...EnqueueOption) (Published, error) {
	return q.EnqueueAll(ctx, []T{value}, options...)
}

// EnqueueAll stores messages, all or none. The options hold for each of them.
func (q *Queue[T]) EnqueueAll(ctx context.Context, values []T, options ...EnqueueOption) (Published, error) {
	r, o, err := q.request(ctx, values, options)
	if err != nil {
		return Published{}, err
	}
	if err := q.c.do(ctx, r, o.Timeout); err != nil {
		return Published{}, err
	}
	return published(r), nil
}

// EnqueueAsync begins to enqueue, and does not wait: see Stream.PublishAsync.
func (q *Queue[T]) EnqueueAsync(ctx context.Context, value T, options ...EnqueueOption) *Pending {
	return q.EnqueueAllAsync(ctx, []T{value}, options...)
}

// EnqueueAllAsync is EnqueueAsync for messages that are stored all or none.
func (q *Queue[T]) EnqueueAllAsync(ctx context.Context, values []T, options ...EnqueueOption) *Pending {
	r, o, err := q.request(ctx, values, options)
	if err != nil {
		return &Pending{err: err}
	}
	q.c.start(r, o.Timeout)
	return &Pending{r: r}
}

func (q *Queue[T]) request(ctx context.Context, values []T, options []EnqueueOption) (*request, EnqueueOptions, error) {
	o := NewEnqueueOptions(options...)
	if err := o.Check(); err != nil {
		return nil, o, err
	}
	r, err := sendingOf(q.c, ctx, "enqueue", q.name, q.codec, values, o.PublishOptions)
	if err != nil {
		return nil, o, err
	}
	r.numbered = true
	s := r.send
	s.delay, s.priority, s.unique, s.period = o.Delay, o.Priority, o.UniqueKey, o.UniqueFor
	return r, o, nil
}

// Job is a message of a queue that a handler works on.
type Job[T any] struct {
	Position int64
	Attempt  int // 1 for the first delivery of the message
	Key      string
	Headers  map[string]any
	Time     time.Time // when it was enqueued
	Value    T
}

// Handler works on a job. The message is acknowledged when it returns nil. With an error the message is delivered again later, with
// one of RetryAfter after that time, and with one of Dead never. ctx ends when the lease is lost, or when the worker has to stop.
type Handler[T any] func(ctx context.Context, job *Job[T]) error

// RetryAfter returns an error of a handler: the message is delivered again after this time.
func RetryAfter(d time.Duration, reason string) error { return &verdict{reason: reason, delay: d} }

// Dead returns an error of a handler: the message becomes a dead letter at once.
func Dead(reason string) error { return &verdict{reason: reason, dead: true} }

type verdict struct {
	reason  string
	delay   time.Duration
	dead    bool
	refused bool // by the codec, not by the handler
}

func (v *verdict) Error() string { return v.reason }

// IsDead reports whether err is of Dead, for other implementations of Jobs.
func IsDead(err error) bool { v := verdictOf(err); return v.dead }

// RetryDelay returns the time of an error of RetryAfter, or 0, for other implementations of Jobs.
func RetryDelay(err error) time.Duration { return verdictOf(err).delay }

// Outcome is what has become of a job.
type Outcome string

const (
	Acked  Outcome = "acked"
	Nacked Outcome = "nacked"
	Lost   Outcome = "lost" // another consumer has the message, or will get it
)

// A WorkOption is an option of Work.
type WorkOption func(*WorkOptions)

// WorkOptions are what WorkOptions set, for other implementations of Jobs.
type WorkOptions struct {
	Concurrency int
	Lease       time.Duration
	Drain       time.Duration
	Outcome     func(position int64, outcome Outcome)
}

// NewWorkOptions applies options.
func NewWorkOptions(options ...WorkOption) WorkOptions {
	o := WorkOptions{Concurrency: 1, Lease: 30 * time.Second, Drain: 10 * time.Second}
	for _, option := range options {
		option(&o)
	}
	return o
}

// Concurrency is how many handlers run at a time; 1 by default.
func Concurrency(n int) WorkOption { return func(o *WorkOptions) { o.Concurrency = n } }

// shortestLease leaves a moment between two extensions.
const shortestLease = 10 * time.Millisecond

// Lease is for how long a message belongs to its handler after the last sign of life, which comes at half this time. 30 s by default, 10 ms at least.
func Lease(d time.Duration) WorkOption { return func(o *WorkOptions) { o.Lease = d } }

// Drain is how long handlers may run after the worker has to stop; 10 s by default. Then their context ends.
func Drain(d time.Duration) WorkOption { return func(o *WorkOptions) { o.Drain = d } }

// OnOutcome calls f when it is known what has become of a job, one after the other, on a goroutine of its own. Without it, errors of handlers
// that are not of RetryAfter or Dead go to Options.Logger.
func OnOutcome(f func(position int64, outcome Outcome)) WorkOption {
	return func(o *WorkOptions) { o.Outcome = f }
}

// Worker calls a handler with the messages of a queue.
type Worker struct{ core *workerCore }

// Work calls handle with the messages of the queue until ctx ends, or the client is closed. Then it takes no more, lets the handlers
// end for the time of Drain, and returns nil, or ErrStillRunning as Stop does. It returns an error if the server does not let it work any more. A client has one worker for
// each queue. A message that the codec refuses becomes a dead letter.
func (q *Queue[T]) Work(ctx context.Context, handle Handler[T], options ...WorkOption) error {
	w, err := q.Start(ctx, handle, options...)
	if err != nil {
		if ctx.Err() != nil && !errors.Is(err, errInvalid) {
			return nil
		}
		return err
	}
	select {
	case <-ctx.Done():
		return w.Stop(context.Background())
	case <-w.core.over:
		grace, cancel := context.WithTimeout(context.Background(), handlerGrace)
		defer cancel()
		return w.core.wait(grace)
	}
}

// Start is Work in the background. It returns when the server has taken the worker; ctx is for that alone.
func (q *Queue[T]) Start(ctx context.Context, handle Handler[T], options ...WorkOption) (*Worker, error) {
	o := NewWorkOptions(options...)
	if err := o.Check(); err != nil {
		return nil, err
	}
	core := newWorkerCore(q.c, q.name, o)
	core.handle = func(ctx context.Context, d *delivery) error {
		value, err := q.codec.Decode(d.payload)
		if err != nil {
			return &verdict{reason: "the codec refuses the message: " + err.Error(), dead: true, refused: true}
		}
		job := Job[T]{d.position, d.attempt, d.key, d.headers, d.time, value}
		return handle(q.c.Trace(ctx, d.headers), &job)
	}
	if err := core.start(ctx); err != nil {
		return nil, err
	}
	return &Worker{core}, nil
}

// Stop takes no more messages, waits for the handlers for the time of Drain, and ends the context of the others. If ctx ends before Drain
// does, it ends their context then. After that it waits for at most one second: if handlers still run, the error is ErrStillRunning, and says how many.
func (w *Worker) Stop(ctx context.Context) error { return w.core.stop(ctx) }

// Done is closed when the worker has ended, and all its handlers have returned.
func (w *Worker) Done() <-chan struct{} { return w.core.done }

// Err returns why the worker has ended; nil after Stop.
func (w *Worker) Err() error {
	select {
	case <-w.core.done:
		return w.core.err
	default:
		return nil
	}
}
