package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/gateway"
	"github.com/tidewire/tidewire/queue"
	"github.com/tidewire/tidewire/stream"
)

// queueStore gives the gateway the queues of one database.
type queueStore struct {
	pool *pgxpool.Pool
	log  *slog.Logger
	hub  *stream.Hub

	work    context.Context // of producers and nodes; ends with run
	stop    context.CancelFunc
	running sync.WaitGroup

	accepted context.Context    // of what is accepted and not recorded; ends with abandon
	abandon  context.CancelFunc // gives that up

	open *registry[*openQueue]

	gone struct { // nodes of queues that are not open any more
		sync.Mutex
		stats queue.NodeStats
	}
}

// openQueue is a queue that somebody enqueues to or consumes.
type openQueue struct {
	*queue.Queue
	producer *queue.Producer
	node     *queue.Node
	progress progress // of what is enqueued
	dropped  atomic.Bool
	counted  bool // among those that are gone; guarded by queueStore.gone
}

func newQueueStore(pool *pgxpool.Pool, hub *stream.Hub, log *slog.Logger) *queueStore {
	s := &queueStore{pool: pool, log: log, hub: hub}
	s.work, s.stop = context.WithCancel(context.Background())
	s.accepted, s.abandon = context.WithCancel(context.Background())
	s.open = newRegistry(registryConfig[*openQueue]{Open: s.lookup, Start: s.start, ErrClosed: queue.ErrClosed, Log: log})
	return s
}

// run works until ctx ends, what was accepted by then is written, and the nodes
// have given up what they had claimed.
func (s *queueStore) run(ctx context.Context) {
	<-ctx.Done()
	s.open.close() // nothing begins any more
	s.stop()
	s.running.Wait()
}

// lookup finds a queue to be enqueued to or consumed.
func (s *queueStore) lookup(ctx context.Context, name string) (*openQueue, error) {
	q, err := queue.Lookup(ctx, s.pool, name)
	if err != nil {
		return nil, err
	}
	appender := stream.AppenderConfig{Writer: stream.WriterConfig{Log: s.log}, Hub: s.hub}
	return &openQueue{
		Queue:    q,
		producer: queue.NewProducer(q, queue.ProducerConfig{Appender: appender}),
		node:     queue.NewNode(q, queue.NodeConfig{Hub: s.hub, Log: s.log}),
	}, nil
}

// start runs the producer and node of a queue. The node alone says when that ends: it tells
// the consumers why, and the producer ends after it.
func (s *queueStore) start(o *openQueue) {
	s.running.Go(func() {
		defer context.AfterFunc(s.accepted, func() { o.producer.Abandon(); o.node.Abandon() })()
		producing, stop := context.WithCancel(s.work)
		var producer sync.WaitGroup
		producer.Go(func() { o.producer.Run(producing) })
		if err := o.node.Run(s.work); err != nil {
			level := slog.LevelWarn
			if errors.Is(err, queue.ErrNotFound) { // as somebody wanted
				level = slog.LevelInfo
				o.dropped.Store(true)
			}
			s.log.Log(s.work, level, "queue is not served any more", "queue", o.Name(), "error", err)
			s.forget(o)
			stop()
		}
		producer.Wait()
		stop()
	})
}

// end has what serves a queue that is gone end. From now on its name stands for
// the queue that is there then.
func (s *queueStore) end(o *openQueue) {
	s.forget(o)
	o.node.Dropped()
}

func (s *queueStore) forget(o *openQueue) {
	s.count(o)
	s.open.forget(o.Name(), o)
}

// changed is told of a queue that was made or dropped just now: there may be another of its
// name, or none.
func (s *queueStore) changed(ctx context.Context, name string) {
	s.open.changed(named(name))
	o, open := s.open.peek(name)
	if !open {
		return
	}
	q, err := queue.Lookup(ctx, s.pool, name)
	switch {
	case errors.Is(err, queue.ErrNotFound), err == nil && q.Stream().ID() != o.Stream().ID():
		s.end(o)
	case err != nil:
		s.forget(o) // its node finds out
	}
}

// Enqueue implements gateway.QueueStore.
func (s *queueStore) Enqueue(ctx context.Context, name string, messages []gateway.Message, opts gateway.EnqueueOptions, done func(gateway.Place, error)) error {
	o, err := s.open.get(ctx, name)
	if err != nil {
		return queueError(err)
	}
	if err := o.checkPriority(opts.Priority); err != nil {
		return err
	}
	out := make([]queue.Message, len(messages))
	for i := range messages {
		out[i] = queueMessage(&messages[i], opts)
	}
	return s.submit(o, done, func(done func(int64, error)) error { return o.producer.Submit(ctx, out, done) })
}

// checkPriority refuses a priority that the queue lacks. Package queue does so too, but
// does not know what clients call it.
func (o *openQueue) checkPriority(priority int) error {
	has := o.Options().Priorities
	switch {
	case priority == 0 || priority < has:
		return nil
	case has == 0:
		return &gateway.FieldError{Field: "priority", Problem: "want none, because the queue has no priorities"}
	}
	return &gateway.FieldError{Field: "priority", Problem: fmt.Sprintf("want 0 to %d, because the queue has %d priorities", has-1, has)}
}

func queueMessage(m *gateway.Message, opts gateway.EnqueueOptions) queue.Message {
	out := queue.Message{Message: stream.Message{Key: m.Key, Headers: m.Headers, Payload: m.Payload}, Priority: opts.Priority}
	if opts.Delay > 0 {
		out.Due = time.Now().Add(opts.Delay)
	}
	return out
}

// EnqueueUnique implements gateway.QueueStore.
func (s *queueStore) EnqueueUnique(ctx context.Context, name string, m gateway.Message, opts gateway.EnqueueOptions, unique gateway.Unique, done func(gateway.Place, error)) error {
	o, err := s.open.get(ctx, name)
	if err != nil {
		return queueError(err)
	}
	if err := o.checkPriority(opts.Priority); err != nil {
		return err
	}
	out := queueMessage(&m, opts)
	out.Unique = queue.Unique{Key: unique.Key, Period: unique.Period}
	return s.submit(o, done, func(done func(int64, error)) error { return o.producer.SubmitUnique(ctx, out, done) })
}

// submit has messages submitted to the queue, and says what became of them.
func (s *queueStore) submit(o *openQueue, done func(gateway.Place, error), submit func(done func(int64, error)) error) error {
	o.progress.begin()
	err := submit(func(first int64, err error) {
		o.progress.end()
		if errors.Is(err, queue.ErrNotFound) {
			s.end(o)
		}
		place := gateway.Place{Partition: -1, Position: first, Count: 1}
		if errors.Is(err, queue.ErrDuplicate) {
			place.Duplicate, err = true, nil
		}
		done(place, queueError(err))
	})
	if err != nil { // then done is not called
		o.progress.end()
	}
	if errors.Is(err, queue.ErrClosed) && o.dropped.Load() { // since it was found to be open
		err = queue.ErrNotFound
	}
	return queueError(err)
}

// visibility is how long a delivery is its receiver's, unless it extends that.
const visibility = 30 * time.Second

// Consume implements gateway.QueueStore.
func (s *queueStore) Consume(ctx context.Context, name string) (gateway.Consumption, error) {
	o, err := s.open.get(ctx, name)
	if err != nil {
		return nil, queueError(err)
	}
	return consumption{o.node.Consume(queue.ConsumerOptions{Credits: -1, Visibility: visibility})}, nil
}

// consumption is a queue.Consumer with the gateway's deliveries.
type consumption struct{ consumer *queue.Consumer }

// Receive implements gateway.Consumption.
func (c consumption) Receive(ctx context.Context, limit int) ([]gateway.Delivery, error) {
	ds, err := c.consumer.ReceiveUpTo(ctx, limit)
	if err != nil {
		return nil, queueError(err)
	}
	until := time.Now().Add(visibility)
	out := make([]gateway.Delivery, len(ds))
	for i, d := range ds {
		out[i] = gateway.Delivery{Message: gatewayMessage(&d.Message), Attempt: d.Attempt, Until: until, Lease: d}
	}
	return out, nil
}

// SetCredits implements gateway.Consumption.
func (c consumption) SetCredits(n int) { c.consumer.SetCredits(n) }

// Broken implements gateway.Consumption.
func (c consumption) Broken() <-chan struct{} { return c.consumer.Broken() }

// Close implements gateway.Consumption.
func (c consumption) Close() { c.consumer.Close() }

func deliveries(leases []gateway.Lease) []*queue.Delivery {
	ds := make([]*queue.Delivery, len(leases))
	for i, l := range leases {
		ds[i] = l.(*queue.Delivery)
	}
	return ds
}

// Ack implements gateway.LeaseStore.
func (s *queueStore) Ack(ctx context.Context, leases []gateway.Lease) []error {
	return queueErrors(queue.AckAll(ctx, deliveries(leases)))
}

// AckLater implements gateway.LeaseStore.
func (s *queueStore) AckLater(leases []gateway.Lease) {
	for _, d := range deliveries(leases) {
		d.AckLater() // without a promise
	}
}

// Nack implements gateway.LeaseStore.
func (s *queueStore) Nack(ctx context.Context, leases []gateway.Lease, delay time.Duration, reason string) []error {
	errs := make([]error, len(leases))
	var waiting sync.WaitGroup // they share a commit
	for i, d := range deliveries(leases) {
		waiting.Go(func() { errs[i] = d.Nack(ctx, queue.NackOptions{Delay: delay, Reason: reason}) })
	}
	waiting.Wait()
	return queueErrors(errs)
}

// Extend implements gateway.LeaseStore.
func (s *queueStore) Extend(_ context.Context, leases []gateway.Lease, lease time.Duration) []error {
	errs := make([]error, len(leases))
	for i, d := range deliveries(leases) {
		errs[i] = d.Extend(lease)
	}
	return queueErrors(errs)
}

// queueAdmin makes and drops the queues.
type queueAdmin struct {
	pool    *pgxpool.Pool
	made    func(ctx context.Context, q *queue.Queue) // is told of what was just made
	dropped func(ctx context.Context, name string)    // and of what was dropped
}

// Create implements gateway.QueueAdmin.
func (a queueAdmin) Create(ctx context.Context, name string, opts *gateway.QueueOptions) error {
	var want queue.Options
	if opts != nil {
		want = queue.Options{
			MaxAttempts: opts.MaxAttempts, RetryMin: opts.RetryMin, RetryMax: opts.RetryMax, Priorities: opts.Priorities, Lanes: opts.Lanes,
		}
	}
	q, err := queue.Ensure(ctx, a.pool, name, want)
	if opts == nil && errors.Is(err, queue.ErrOptions) {
		if found, none := queue.Lookup(ctx, a.pool, name); !errors.Is(none, queue.ErrNotFound) {
			q, err = found, none // there is one; else a stream is in its way
		}
	}
	if err == nil {
		a.made(ctx, q)
	}
	return queueError(err)
}

// List implements gateway.QueueAdmin.
func (a queueAdmin) List(ctx context.Context) ([]string, error) {
	names, err := queue.List(ctx, a.pool)
	return names, queueError(err)
}

// Stats implements gateway.QueueAdmin.
func (a queueAdmin) Stats(ctx context.Context, name string) (gateway.QueueStats, error) {
	q, err := queue.Lookup(ctx, a.pool, name)
	if err != nil {
		return gateway.QueueStats{}, queueError(err)
	}
	s, err := q.Stats(ctx)
	return gateway.QueueStats{
		Name: name, Ready: s.Ready, Leased: s.Claimed, Delayed: s.Delayed, Dead: s.Dead,
		Head: s.Head, Oldest: s.OldestAge.Milliseconds(), Nodes: s.Nodes, Paused: s.Paused,
	}, queueError(err)
}

// Drop implements gateway.QueueAdmin.
func (a queueAdmin) Drop(ctx context.Context, name string) error {
	err := queue.Drop(ctx, a.pool, name)
	if err == nil {
		a.dropped(ctx, name)
	}
	return queueError(err)
}

// queueError says what the gateway may tell of an error of package queue.
func queueError(err error) error {
	for _, e := range []struct{ from, to error }{
		{queue.ErrInvalid, gateway.ErrInvalid},
		{queue.ErrOptions, gateway.ErrExists},
		{queue.ErrStreamInUse, gateway.ErrExists},
		{queue.ErrLeaseLost, gateway.ErrLeaseLost},
		{queue.ErrSettled, gateway.ErrLeaseLost},
		{queue.ErrNotFound, gateway.ErrNotFound},
		{queue.ErrSpread, gateway.ErrSpread},
		{queue.ErrUnknown, gateway.ErrOutcomeUnknown},
		{queue.ErrJournalLost, gateway.ErrJournalLost},
	} {
		if errors.Is(err, e.from) {
			return fmt.Errorf("%w: %w", e.to, err)
		}
	}
	return gatewayError(err)
}

func queueErrors(errs []error) []error {
	for i, err := range errs {
		errs[i] = queueError(err)
	}
	return errs
}
