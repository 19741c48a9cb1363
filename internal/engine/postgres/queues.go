package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/queue"
	"github.com/tidewire/tidewire/stream"
)

// queues is engine.Queues on the queues of one database.
type queues struct {
	pool *pgxpool.Pool
	log  *slog.Logger
	hub  *stream.Hub
	// maxMessage is that of Config.
	maxMessage int
	buffer     int                                       // bytes, of a node; 0 is the default
	made       func(ctx context.Context, q *queue.Queue) // called after a queue was created

	work    context.Context // context of enqueuers and nodes; ends with run
	stop    context.CancelFunc
	running sync.WaitGroup

	accepted context.Context    // context of accepted and uncommitted work; ends with abandon
	abandon  context.CancelFunc // gives up accepted work

	open *registry[*openQueue]

	gone struct { // sums of the nodes of closed queues
		sync.Mutex
		stats queue.NodeStats
	}
}

// openQueue is a queue that is in use.
type openQueue struct {
	*queue.Queue
	enqueuer *queue.Enqueuer
	node     *queue.Node
	progress progress // progress of enqueues
	dropped  atomic.Bool
	counted  bool // its statistics are in queues.gone; guarded by queues.gone
}

func newQueues(cfg Config, hub *stream.Hub) *queues {
	s := &queues{pool: cfg.Pool, log: cfg.Log, hub: hub, maxMessage: cfg.MaxMessage}
	if cfg.BufferBytes > 0 {
		s.buffer = min(cfg.BufferBytes, defaultBuffer)
	}
	s.work, s.stop = context.WithCancel(context.Background())
	s.accepted, s.abandon = context.WithCancel(context.Background())
	s.open = newRegistry(registryConfig[*openQueue]{Open: s.lookup, Start: s.start, ErrClosed: queue.ErrClosed, Log: cfg.Log})
	return s
}

// run runs until ctx ends, everything accepted by then is written, and the
// nodes have released their claims.
func (s *queues) run(ctx context.Context) {
	<-ctx.Done()
	s.open.close() // no queue is opened after this
	s.stop()
	s.running.Wait()
}

// lookup finds a queue and creates its enqueuer and node.
func (s *queues) lookup(ctx context.Context, name string) (*openQueue, error) {
	q, err := queue.Lookup(ctx, s.pool, name)
	if err != nil {
		return nil, err
	}
	q.LimitMessages(s.maxMessage)
	appender := stream.AppenderConfig{Writer: stream.WriterConfig{Log: s.log}, Hub: s.hub}
	return &openQueue{
		Queue:    q,
		enqueuer: queue.NewEnqueuer(q, queue.EnqueuerConfig{Appender: appender}),
		node:     queue.NewNode(q, queue.NodeConfig{Hub: s.hub, BufferBytes: s.buffer, Log: s.log}),
	}, nil
}

// start runs the enqueuer and node of a queue. The node decides when the queue ends: it
// tells the consumers why, and the enqueuer ends after it.
func (s *queues) start(o *openQueue) {
	s.running.Go(func() {
		defer context.AfterFunc(s.accepted, func() { o.enqueuer.Abandon(); o.node.Abandon() })()
		producing, stop := context.WithCancel(s.work)
		var enqueuer sync.WaitGroup
		o.enqueuer.Start()
		enqueuer.Go(func() { <-producing.Done(); o.enqueuer.Stop() })
		if err := o.node.Run(s.work); err != nil {
			level := slog.LevelWarn
			if errors.Is(err, queue.ErrNotFound) { // somebody dropped it
				level = slog.LevelInfo
				o.dropped.Store(true)
			}
			s.log.Log(s.work, level, "the queue is no longer served", "queue", o.Name(), "error", err)
			s.forget(o)
			stop()
		}
		enqueuer.Wait()
		stop()
	})
}

// end ends the enqueuer and node of a dropped queue. From now on its name is
// looked up again.
func (s *queues) end(o *openQueue) {
	s.forget(o)
	o.node.Dropped()
}

func (s *queues) forget(o *openQueue) {
	s.count(o)
	s.open.forget(o.Name(), o)
}

// changed is called after a queue was created or dropped: its name may belong to another
// queue, or to none.
func (s *queues) changed(ctx context.Context, name string) {
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
		s.forget(o) // its node finds out whether the queue was dropped
	}
}

// Enqueue implements engine.Queues.
func (s *queues) Enqueue(ctx context.Context, name string, as *engine.RequestID, messages []engine.Message, opts engine.EnqueueOptions, done func(engine.Place, error)) error {
	o, err := s.open.get(ctx, name)
	if err != nil {
		return engineError(err)
	}
	if err := o.checkPriority(opts.Priority); err != nil {
		return err
	}
	lent := queueMessages.lend(len(messages))
	defer queueMessages.giveBack(lent)
	out := *lent
	for i := range messages {
		out[i] = queueMessage(&messages[i], opts)
	}
	return s.submit(o, done, func(done func(queue.Enqueued, error)) error {
		if as == nil {
			return o.enqueuer.Submit(ctx, out, done)
		}
		return o.enqueuer.SubmitAs(ctx, stream.RequestID{Client: as.Client, Sequence: as.Sequence}, out, done)
	})
}

// checkPriority rejects a priority that the queue does not have. Package queue does so
// too, but does not know the field's name on the wire.
func (o *openQueue) checkPriority(priority int) error {
	has := o.Options().Priorities
	switch {
	case priority == 0 || priority < has:
		return nil
	case has == 0:
		return &engine.FieldError{Field: "priority", Problem: "want none, because the queue has no priorities"}
	}
	return &engine.FieldError{Field: "priority", Problem: fmt.Sprintf("want 0 to %d, because the queue has %d priorities", has-1, has)}
}

func queueMessage(m *engine.Message, opts engine.EnqueueOptions) queue.Message {
	out := queue.Message{Key: m.Key, Headers: m.Headers, Payload: m.Payload, Priority: opts.Priority}
	if opts.Delay > 0 {
		out.Due = time.Now().Add(opts.Delay)
	}
	if opts.Unique != nil {
		out.Unique = queue.Unique{Key: opts.Unique.Key, Period: opts.Unique.Period}
	}
	return out
}

// submit submits messages to the queue, and passes the result to done.
func (s *queues) submit(o *openQueue, done func(engine.Place, error), submit func(done func(queue.Enqueued, error)) error) error {
	o.progress.begin()
	e := s.enqueuing(o, done)
	err := submit(e.done)
	if err != nil { // then done is not called
		o.progress.end()
		e.recycle()
	}
	if errors.Is(err, queue.ErrClosed) && o.dropped.Load() { // it was dropped after the look-up
		err = queue.ErrNotFound
	}
	return engineError(err)
}

// visibility is the initial lease (visibility timeout) of a delivery.
const visibility = 30 * time.Second

// Consume implements engine.Queues.
func (s *queues) Consume(ctx context.Context, name string, opts engine.ConsumeOptions) (engine.Consumption, error) {
	o, err := s.open.get(ctx, name)
	if err != nil {
		return nil, engineError(err)
	}
	return consumption{o.node.Consume(queue.ConsumerOptions{Credits: -1, Visibility: visibility, ExplicitBegin: opts.ExplicitBegin})}, nil
}

// consumption is engine.Consumption on a queue.Consumer.
type consumption struct{ consumer *queue.Consumer }

// Receive implements engine.Consumption.
func (c consumption) Receive(ctx context.Context, limit int) ([]engine.Delivery, error) {
	ds, err := c.consumer.ReceiveUpTo(ctx, limit)
	if err != nil {
		return nil, engineError(err)
	}
	until := time.Now().Add(visibility)
	out := make([]engine.Delivery, len(ds))
	for i, d := range ds {
		out[i] = engine.Delivery{Message: engineMessage(&d.Message), Attempt: d.Attempt, Until: until, Lease: d}
	}
	return out, nil
}

// SetCredits implements engine.Consumption.
func (c consumption) SetCredits(n int) { c.consumer.SetCredits(n) }

// Broken implements engine.Consumption.
func (c consumption) Broken() <-chan struct{} { return c.consumer.Broken() }

// Close implements engine.Consumption.
func (c consumption) Close() { c.consumer.Close() }

// Lost implements engine.Consumption.
func (c consumption) Lost() { c.consumer.Lost() }

func deliveries(leases []engine.Lease) []*queue.Delivery {
	ds := make([]*queue.Delivery, len(leases))
	for i, l := range leases {
		ds[i] = l.(*queue.Delivery)
	}
	return ds
}

// Begin implements engine.Queues.
func (s *queues) Begin(leases []engine.Lease) []error {
	errs := make([]error, len(leases))
	for i, d := range deliveries(leases) {
		errs[i] = d.Begin()
	}
	return engineErrorsOf(errs)
}

// Ack implements engine.Queues.
func (s *queues) Ack(ctx context.Context, leases []engine.Lease) []error {
	return engineErrorsOf(queue.AckAll(ctx, deliveries(leases)))
}

// AckLater implements engine.Queues.
func (s *queues) AckLater(leases []engine.Lease) {
	for _, d := range deliveries(leases) {
		d.AckLater()
	}
}

// Nack implements engine.Queues.
func (s *queues) Nack(ctx context.Context, leases []engine.Lease, how engine.Nack) []error {
	errs := make([]error, len(leases))
	var waiting sync.WaitGroup // concurrent, so that they share a commit
	for i, d := range deliveries(leases) {
		waiting.Go(func() { errs[i] = d.Nack(ctx, queue.NackOptions(how)) })
	}
	waiting.Wait()
	return engineErrorsOf(errs)
}

// Extend implements engine.Queues.
func (s *queues) Extend(_ context.Context, leases []engine.Lease, lease time.Duration) []error {
	errs := make([]error, len(leases))
	for i, d := range deliveries(leases) {
		errs[i] = d.Extend(lease)
	}
	return engineErrorsOf(errs)
}
