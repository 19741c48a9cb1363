package scenario

import (
	"context"
	"errors"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/queue"
	"github.com/tidewire/tidewire/stream"
)

// lease is Tidewire's queue: messages are appended to a stream, and claimed and
// acknowledged by ranges of positions.
var lease = sides{
	describe: "a stream, claimed and acknowledged by ranges; every acknowledgement waits for its commit",
	wire:     leaseWire,
	many:     true,
	prepare: func(ctx context.Context, pool *pgxpool.Pool, load QueueLoad) error {
		return freshStreams(ctx, pool, load, func(name string) error {
			_, err := queue.Ensure(ctx, pool, name, queue.Options{})
			return err
		})
	},
	writer: func(ctx context.Context, pool *pgxpool.Pool, load QueueLoad) (writeSide, error) {
		return newLogWriter(ctx, pool, load)
	},
	reader: func(ctx context.Context, pool *pgxpool.Pool, load QueueLoad) (readSide, error) {
		return newLeaseReader(ctx, pool, load)
	},
}

// leaseReader has the queue nodes of all readers of a process, one for each queue.
type leaseReader struct {
	load    QueueLoad
	hub     *stream.Hub
	nodes   []*queue.Node
	running sync.WaitGroup
	stop    context.CancelFunc
	stopHub context.CancelFunc
}

func newLeaseReader(ctx context.Context, pool *pgxpool.Pool, load QueueLoad) (*leaseReader, error) {
	r := &leaseReader{load: load, hub: stream.NewHub(pool, stream.HubConfig{})}
	for n := range load.Streams {
		q, err := queue.Lookup(ctx, pool, load.streamName(n))
		if err != nil {
			return nil, err
		}
		r.nodes = append(r.nodes, queue.NewNode(q, queue.NodeConfig{Hub: r.hub, Linger: load.Linger}))
	}
	ctx = context.WithoutCancel(ctx)
	hubCtx, stopHub := context.WithCancel(ctx)
	nodeCtx, stop := context.WithCancel(ctx)
	r.stop, r.stopHub = stop, stopHub
	r.running.Go(func() { r.hub.Run(hubCtx) })
	r.running.Go(func() {
		var nodes sync.WaitGroup
		for _, n := range r.nodes {
			nodes.Go(func() { n.Run(nodeCtx) }) // readers get its error
		}
		nodes.Wait()
		stopHub()
	})
	return r, nil
}

func (r *leaseReader) open(_ context.Context, number int) (source, error) {
	node := r.nodes[r.load.streamOf(number)]
	return &leaseSource{consumer: node.Consume(queue.ConsumerOptions{Credits: r.load.ReadBatch})}, nil
}

func (r *leaseReader) close() {
	r.stop()
	r.running.Wait()
}

// leaseSource is one consumer.
type leaseSource struct {
	consumer   *queue.Consumer
	deliveries []*queue.Delivery
	payloads   [][]byte
}

func (s *leaseSource) receive(ctx context.Context) (_ [][]byte, err error) {
	if s.deliveries, err = s.consumer.Receive(ctx); err != nil {
		return nil, err
	}
	s.payloads = s.payloads[:0]
	for _, d := range s.deliveries {
		s.payloads = append(s.payloads, d.Payload)
	}
	return s.payloads, nil
}

func (s *leaseSource) ack(ctx context.Context) error {
	return errors.Join(queue.AckAll(ctx, s.deliveries)...)
}

func (s *leaseSource) close() { s.consumer.Close() }
