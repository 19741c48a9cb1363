package gateway_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/engine"
)

// fakeQueues are queues in memory.
type fakeQueues struct {
	engine.Queues // of what no test needs
	*commits
	state   sync.Mutex
	queues  map[string]*fakeQueue
	changed chan struct{} // closed when anything changes
	fail    error         // of commits
	lease   time.Duration
	first   time.Duration // lease of a message's first delivery, if not zero
	open    int           // consumptions
	last    int           // lease

	receiving int             // Receives that wait
	asked     []time.Duration // requested delays and leases
}

type fakeQueue struct {
	opts   engine.QueueOptions
	head   int64
	ready  []*fakeJob
	leased map[int]*fakeJob
	acked  []int64
	nacks  []string
	unique map[string]int64
}

type fakeJob struct {
	message engine.Message
	attempt int
	from    time.Time // not to be delivered before
	until   time.Time
	owner   *fakeConsumption
	begun   bool
}

// fakeLease identifies a delivery.
type fakeLease struct {
	queue string
	id    int
}

func newFakeQueues(t *testing.T, names ...string) *fakeQueues {
	f := &fakeQueues{commits: new(commits), queues: make(map[string]*fakeQueue), changed: make(chan struct{}), lease: time.Minute}
	for _, name := range names {
		f.queues[name] = &fakeQueue{leased: make(map[int]*fakeJob), unique: make(map[string]int64)}
	}
	return f
}

func (f *fakeQueues) change(do func()) {
	f.state.Lock()
	defer f.state.Unlock()
	do()
	close(f.changed)
	f.changed = make(chan struct{})
}

// Enqueue knows the keys of unique messages of one period that never ends.
func (f *fakeQueues) Enqueue(_ context.Context, queue string, _ *engine.RequestID, messages []engine.Message, opts engine.EnqueueOptions, done func(engine.Place, error)) error {
	messages = slices.Clone(messages) // the caller keeps the slice
	f.later(func() {
		place := engine.Place{Partition: -1, Count: len(messages)}
		var err error
		f.change(func() {
			q := f.queues[queue]
			switch {
			case q == nil:
				err = engine.ErrNotFound
				return
			case f.fail != nil:
				err = f.fail
				return
			}
			if opts.Delay > 0 {
				f.asked = append(f.asked, opts.Delay)
			}
			if opts.Unique != nil {
				if place.Position, place.Duplicate = q.unique[opts.Unique.Key]; place.Duplicate {
					return
				}
				q.unique[opts.Unique.Key] = q.head + 1
			}
			place.Position = q.head + 1
			for _, m := range messages {
				q.head++
				m.Position = q.head
				q.ready = append(q.ready, &fakeJob{message: m, from: time.Now().Add(opts.Delay)})
			}
		})
		done(place, err)
	})
	return nil
}

// Options are those with which the queue was made.
func (f *fakeQueues) Options(_ context.Context, queue string) (engine.QueueOptions, error) {
	f.state.Lock()
	defer f.state.Unlock()
	if f.queues[queue] == nil {
		return engine.QueueOptions{}, engine.ErrNotFound
	}
	return f.queues[queue].opts, nil
}

func (f *fakeQueues) Consume(_ context.Context, queue string, opts engine.ConsumeOptions) (engine.Consumption, error) {
	f.state.Lock()
	defer f.state.Unlock()
	if f.queues[queue] == nil {
		return nil, engine.ErrNotFound
	}
	f.open++
	return &fakeConsumption{f, queue, f.queues[queue], opts.ExplicitBegin}, nil
}

type fakeConsumption struct {
	f        *fakeQueues
	queue    string
	of       *fakeQueue
	explicit bool // Begin begins, not Receive
}

func (c *fakeConsumption) Receive(ctx context.Context, limit int) ([]engine.Delivery, error) {
	c.f.change(func() { c.f.receiving++ })
	defer c.f.change(func() { c.f.receiving-- })
	for {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		c.f.state.Lock()
		changed := c.f.changed
		q := c.f.queues[c.queue]
		if q != c.of { // it was dropped
			c.f.state.Unlock()
			return nil, engine.ErrNotFound
		}
		out := c.f.leaseOut(c, q, limit)
		c.f.state.Unlock()
		if len(out) > 0 {
			return out, nil
		}
		select {
		case <-changed:
		case <-time.After(100 * time.Millisecond): // a delay or lease may have ended
		case <-ctx.Done():
		}
	}
}

// SetCredits does nothing: Receive leases only the messages that it returns.
func (c *fakeConsumption) SetCredits(int) {}

// Broken is never closed: Receive checks that itself.
func (c *fakeConsumption) Broken() <-chan struct{} { return nil }

func (f *fakeQueues) leaseOut(c *fakeConsumption, q *fakeQueue, limit int) (out []engine.Delivery) {
	now := time.Now()
	for id, job := range q.leased {
		if now.After(job.until) {
			delete(q.leased, id)
			q.ready = append(q.ready, job)
		}
	}
	var rest []*fakeJob
	for _, job := range q.ready {
		if len(out) == limit || now.Before(job.from) {
			rest = append(rest, job)
			continue
		}
		f.last++
		job.attempt++
		job.begun = !c.explicit
		lease := f.lease
		if job.attempt == 1 && f.first > 0 {
			lease = f.first
		}
		job.until, job.owner = now.Add(lease), c
		q.leased[f.last] = job
		out = append(out, engine.Delivery{Message: job.message, Attempt: job.attempt, Until: job.until, Lease: fakeLease{c.queue, f.last}})
	}
	q.ready = rest
	return out
}

func (c *fakeConsumption) Lost() { c.Close() }

func (c *fakeConsumption) Close() {
	c.f.change(func() {
		c.f.open--
		q := c.f.queues[c.queue]
		if q == nil {
			return
		}
		for id, job := range q.leased {
			if job.owner == c {
				delete(q.leased, id)
				q.ready = append(q.ready, job)
				if !job.begun {
					job.attempt--
				}
			}
		}
	})
}

// settle calls a function for each held lease, after the commit.
func (f *fakeQueues) settle(ctx context.Context, leases []engine.Lease, do func(*fakeQueue, int, *fakeJob)) []error {
	errs := make([]error, len(leases))
	waited := f.wait(ctx, func() { copy(errs, f.settleNow(leases, do)) })
	if waited != nil {
		errs = make([]error, len(leases))
		for i := range errs {
			errs[i] = waited
		}
	}
	return errs
}

func (f *fakeQueues) settleNow(leases []engine.Lease, do func(*fakeQueue, int, *fakeJob)) []error {
	errs := make([]error, len(leases))
	f.change(func() {
		for i, l := range leases {
			id := l.(fakeLease)
			q := f.queues[id.queue]
			switch {
			case f.fail != nil:
				errs[i] = f.fail
			case q == nil || q.leased[id.id] == nil || time.Now().After(q.leased[id.id].until):
				errs[i] = engine.ErrLeaseLost
			default:
				do(q, id.id, q.leased[id.id])
			}
		}
	})
	return errs
}

func acked(q *fakeQueue, id int, job *fakeJob) {
	delete(q.leased, id)
	q.acked = append(q.acked, job.message.Position)
}

func (f *fakeQueues) Begin(leases []engine.Lease) []error {
	return f.settleNow(leases, func(_ *fakeQueue, _ int, job *fakeJob) { job.begun = true })
}

func (f *fakeQueues) Ack(ctx context.Context, leases []engine.Lease) []error {
	return f.settle(ctx, leases, acked)
}

func (f *fakeQueues) AckLater(leases []engine.Lease) { f.settleNow(leases, acked) }

func (f *fakeQueues) Nack(ctx context.Context, leases []engine.Lease, how engine.Nack) []error {
	return f.settle(ctx, leases, func(q *fakeQueue, id int, job *fakeJob) {
		delete(q.leased, id)
		q.nacks = append(q.nacks, how.Reason)
		f.asked = append(f.asked, how.Delay)
		if how.Dead {
			return
		}
		job.from = time.Now().Add(how.Delay)
		q.ready = append(q.ready, job)
	})
}

func (f *fakeQueues) Extend(ctx context.Context, leases []engine.Lease, lease time.Duration) []error {
	return f.settle(ctx, leases, func(_ *fakeQueue, _ int, job *fakeJob) {
		f.asked = append(f.asked, lease)
		job.until = time.Now().Add(lease)
	})
}

func (f *fakeQueues) Create(_ context.Context, name string, opts *engine.QueueOptions) error {
	f.state.Lock()
	defer f.state.Unlock()
	if q := f.queues[name]; q == nil {
		f.queues[name] = &fakeQueue{leased: make(map[int]*fakeJob)}
		if opts != nil {
			f.queues[name].opts = *opts
		}
	} else if opts != nil && q.opts != *opts {
		return engine.ErrExists
	}
	return nil
}

func (f *fakeQueues) List(context.Context) (out []string, err error) {
	f.state.Lock()
	defer f.state.Unlock()
	for name := range f.queues {
		out = append(out, name)
	}
	return out, f.fail
}

func (f *fakeQueues) Stats(_ context.Context, name string) (engine.QueueStats, error) {
	f.state.Lock()
	defer f.state.Unlock()
	q := f.queues[name]
	if q == nil {
		return engine.QueueStats{}, engine.ErrNotFound
	}
	return engine.QueueStats{Name: name, Ready: int64(len(q.ready)), Leased: int64(len(q.leased))}, nil
}

func (f *fakeQueues) Drop(_ context.Context, name string) (err error) {
	f.change(func() {
		if f.queues[name] == nil {
			err = engine.ErrNotFound
		}
		delete(f.queues, name)
	})
	return err
}
