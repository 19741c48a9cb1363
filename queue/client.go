package queue

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/pg"
	"github.com/tidewire/tidewire/migrate"
	"github.com/tidewire/tidewire/stream"
)

// Config configures a Client. The zero value is right for most programs.
type Config struct {
	// Hub is the Hub of the process's stream.Client, if it has one. Defaults to a new Hub that belongs to
	// the Client.
	Hub *stream.Hub
	// Appender configures how messages are enqueued. Its Hub is replaced by the Client's.
	Appender stream.AppenderConfig
	// Node configures how queues are consumed. Its Hub is replaced by the Client's.
	Node NodeConfig
	// Log receives a line for each attempt that failed, from all parts that have no Log of their own. Defaults to none.
	Log *slog.Logger
}

func (c Config) withDefaults() Config {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	c.Appender.Writer.Log = cmp.Or(c.Appender.Writer.Log, c.Log)
	c.Node.Log = cmp.Or(c.Node.Log, c.Log)
	return c
}

// Client enqueues and consumes for a process. On one pool it runs an Enqueuer for each queue that the process enqueues
// to, a Node for each queue that it consumes, and a Hub. A process needs one Client. The Queues that it returns can be
// used for Enqueue, Work and Consume until Close. Safe for concurrent use.
type Client struct {
	cfg  Config
	pool *pgxpool.Pool

	hubbing sync.WaitGroup // the Client's own Hub
	stopHub context.CancelFunc

	serving context.Context // of the nodes
	stop    context.CancelFunc
	running sync.WaitGroup // the nodes

	working     context.Context // of calls of Work
	stopWorking context.CancelFunc

	closing  sync.Once // of Close
	closeErr error

	mu        sync.Mutex // guards the fields below; the maps are by the ID of the queue's first stream
	closed    bool
	enqueuers map[int32]*Enqueuer
	nodes     map[int32]*Node
	workers   sync.WaitGroup // calls of Work; none begins after closed is true
	ending    sync.WaitGroup // enqueuers of dropped queues
}

// Open returns a Client on a database with the schema that package migrate makes; else the error is one of that
// package, which says what to do. It must be closed.
func Open(ctx context.Context, pool *pgxpool.Pool, cfg Config) (*Client, error) {
	status, err := migrate.Inspect(ctx, pool)
	if err = cmp.Or(err, status.Err()); err != nil {
		return nil, fmt.Errorf("open queues: %w", err)
	}
	c := &Client{cfg: cfg.withDefaults(), pool: pool, enqueuers: make(map[int32]*Enqueuer), nodes: make(map[int32]*Node)}
	c.serving, c.stop = context.WithCancel(context.Background())
	c.working, c.stopWorking = context.WithCancel(context.Background())
	hubbing, stopHub := context.WithCancel(context.Background())
	c.stopHub = stopHub
	if c.cfg.Hub == nil {
		hub := stream.NewHub(pool, stream.HubConfig{Announce: true, Log: c.cfg.Log})
		c.hubbing.Go(func() { hub.Run(hubbing) })
		c.cfg.Hub = hub
	}
	c.cfg.Appender.Hub, c.cfg.Node.Hub = c.cfg.Hub, c.cfg.Hub
	return c, nil
}

// Ensure is the function Ensure; the Queue that it returns can be used for Enqueue, Work and
// Consume.
func (c *Client) Ensure(ctx context.Context, name string, opts Options) (*Queue, error) {
	return c.with(Ensure(ctx, c.pool, name, opts))
}

// Lookup is the function Lookup; the Queue that it returns can be used for Enqueue, Work and
// Consume.
func (c *Client) Lookup(ctx context.Context, name string) (*Queue, error) {
	return c.with(Lookup(ctx, c.pool, name))
}

// Drop is the function Drop.
func (c *Client) Drop(ctx context.Context, name string) error { return Drop(ctx, c.pool, name) }

func (c *Client) with(q *Queue, err error) (*Queue, error) {
	if err == nil {
		q.client = c
	}
	return q, err
}

// Close accepts no more messages, ends all calls of Work, and returns when all accepted messages are committed or have failed,
// and all deliveries that were not acknowledged are released. A Consumer that holds deliveries delays it by NodeConfig.Drain at most.
// If ctx ends first, Close abandons the rest: accepted messages and acknowledgements end with ErrOutcomeUnknown, deliveries of handlers
// that still run are delivered again, and Close returns ErrOutcomeUnknown. A further call waits for the first, and returns the same
// error. A handler must not call it: Close would wait for that handler.
func (c *Client) Close(ctx context.Context) error {
	c.closing.Do(func() { c.closeErr = c.close(ctx) })
	return c.closeErr
}

func (c *Client) close(ctx context.Context) error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.stopWorking()
	gaveUp := make(chan struct{})
	unhook := context.AfterFunc(ctx, func() { c.abandon(); close(gaveUp) })
	pg.Wait(ctx, &c.workers)
	c.stop()
	c.stopEnqueuers()
	c.running.Wait()
	c.stopHub()
	c.hubbing.Wait()
	if !unhook() {
		<-gaveUp
		return fmt.Errorf("close queues: %w", ErrOutcomeUnknown)
	}
	return nil
}

func (c *Client) stopEnqueuers() {
	c.mu.Lock()
	var stopping sync.WaitGroup
	for _, e := range c.enqueuers {
		stopping.Go(e.Stop)
	}
	c.mu.Unlock()
	stopping.Wait()
	c.ending.Wait()
}

// abandon drops the messages that are accepted and not stored, and the outcomes that are not
// recorded.
func (c *Client) abandon() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.enqueuers {
		e.Abandon()
	}
	for _, n := range c.nodes {
		n.Abandon()
	}
}

// enqueuer returns the queue's Enqueuer, which it starts if there is none.
func (c *Client) enqueuer(q *Queue) (*Enqueuer, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, ErrClosed
	}
	id := q.Stream().ID()
	e := c.enqueuers[id]
	if e == nil {
		e = NewEnqueuer(q, EnqueuerConfig{Appender: c.cfg.Appender})
		e.Start()
		c.enqueuers[id] = e
	}
	return e, nil
}

// forget stops the enqueuer of a queue that was dropped, and tells its node.
func (c *Client) forget(q *Queue, e *Enqueuer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	id := q.Stream().ID()
	if n := c.nodes[id]; n != nil {
		n.Dropped()
	}
	if c.enqueuers[id] == e && !c.closed {
		delete(c.enqueuers, id)
		c.ending.Go(e.Stop)
	}
}

// node returns the queue's Node, which it runs if there is none.
func (c *Client) node(q *Queue) (*Node, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, ErrClosed
	}
	id := q.Stream().ID()
	n := c.nodes[id]
	if n == nil {
		n = NewNode(q, c.cfg.Node)
		c.nodes[id] = n
		c.running.Go(func() {
			if err := n.Run(c.serving); err != nil {
				c.cfg.Log.Warn("a queue is not consumed any more", "queue", q.Name(), "error", err)
			}
			c.mu.Lock()
			defer c.mu.Unlock()
			delete(c.nodes, id)
		})
	}
	return n, nil
}

// begin registers a call of Work, for which Close waits, and returns the call's context.
func (c *Client) begin(ctx context.Context) (working context.Context, end func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, nil, ErrClosed
	}
	c.workers.Add(1)
	working, cancel := context.WithCancel(ctx)
	unhook := context.AfterFunc(c.working, cancel)
	return working, func() { unhook(); cancel(); c.workers.Done() }, nil
}

// Enqueue stores the messages, in this order, all or none, and returns their positions once they are committed.
// Callers share commits (group commit). It is Enqueuer.Enqueue, and returns the same errors; ErrNotRunning if the
// Queue is not from a Client.
func (q *Queue) Enqueue(ctx context.Context, msgs ...Message) (Enqueued, error) {
	return q.enqueueBy(func(e *Enqueuer) (Enqueued, error) { return e.Enqueue(ctx, msgs...) })
}

// Consume returns a Consumer, for programs that settle each delivery themselves; all others use Work. The error is
// ErrNotRunning if the Queue is not from a Client.
func (q *Queue) Consume(opts ConsumerOptions) (*Consumer, error) {
	if q.client == nil {
		return nil, fmt.Errorf("consume %q: %w", q.name, ErrNotRunning)
	}
	n, err := q.client.node(q)
	if err != nil {
		return nil, fmt.Errorf("consume %q: %w", q.name, err)
	}
	return n.Consume(opts), nil
}
