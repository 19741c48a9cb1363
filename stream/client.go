package stream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/migrate"
)

// Config configures a Client. The zero value is right for most programs.
type Config struct {
	// Appender is how messages are written. Its Hub is the Client's.
	Appender AppenderConfig
	// Hub is how streams are followed. A Client always announces what it appends, and what Notify is told.
	Hub HubConfig
	// Groups is how offsets are written.
	Groups GroupsConfig
	// Retention is how retention is applied. NoRetention leaves that to other processes.
	Retention   RetentionWorkerConfig
	NoRetention bool
	// Log receives a line for each attempt that failed, from all parts that have no Log of their own. Defaults to none.
	Log *slog.Logger
}

func (c Config) withDefaults() Config {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	for _, log := range []**slog.Logger{&c.Appender.Writer.Log, &c.Hub.Log, &c.Groups.Log, &c.Retention.Log} {
		*log = cmp.Or(*log, c.Log)
	}
	c.Hub.Announce = true
	return c
}

// Client is what a process runs to append to streams and to follow them: an Appender for each stream that is appended
// to, a Hub, the Groups and a RetentionWorker, on one pool. A process needs one. Streams that it returns append,
// and can be followed, until Close. Safe for concurrent use.
type Client struct {
	cfg    Config
	pool   *pgxpool.Pool
	hub    *Hub
	groups *Groups

	serving context.Context // of the hub and the groups
	stop    context.CancelFunc
	running sync.WaitGroup

	working     context.Context // of calls of Work
	stopWorking context.CancelFunc

	mu        sync.Mutex // guards the fields below
	closed    bool
	appenders map[int32]*PartitionedAppender // by the ID of their streams
	workers   sync.WaitGroup                 // calls of Work; none begins after closed is true
	ending    sync.WaitGroup                 // appenders of dropped streams
}

// Open returns a Client on a database with the schema that package migrate makes; else the error is one of that
// package, which says what to do. It must be closed.
func Open(ctx context.Context, pool *pgxpool.Pool, cfg Config) (*Client, error) {
	status, err := migrate.Inspect(ctx, pool)
	if err = cmp.Or(err, status.Err()); err != nil {
		return nil, fmt.Errorf("open streams: %w", err)
	}
	cfg = cfg.withDefaults()
	c := &Client{
		cfg: cfg, pool: pool, hub: NewHub(pool, cfg.Hub), groups: NewGroups(pool, cfg.Groups),
		appenders: make(map[int32]*PartitionedAppender),
	}
	c.serving, c.stop = context.WithCancel(context.Background())
	c.working, c.stopWorking = context.WithCancel(context.Background())
	c.running.Go(func() { c.hub.Run(c.serving) })
	c.running.Go(func() { c.groups.Run(c.serving) })
	if !cfg.NoRetention {
		worker := NewRetentionWorker(pool, cfg.Retention)
		c.running.Go(func() { worker.Run(c.serving) })
	}
	return c, nil
}

// Ensure is the function Ensure, for a Stream that appends and can be followed.
func (c *Client) Ensure(ctx context.Context, name string, opts Options) (*Stream, error) {
	return c.with(Ensure(ctx, c.pool, name, opts))
}

// Lookup is the function Lookup, for a Stream that appends and can be followed.
func (c *Client) Lookup(ctx context.Context, name string) (*Stream, error) {
	return c.with(Lookup(ctx, c.pool, name))
}

// Drop is the function Drop.
func (c *Client) Drop(ctx context.Context, name string) error { return Drop(ctx, c.pool, name) }

// with has the client append to the stream.
func (c *Client) with(s *Stream, err error) (*Stream, error) {
	if err != nil {
		return nil, err
	}
	s.client = c
	for _, p := range s.parts {
		p.client = c
	}
	if reader := c.cfg.Hub.Standby; reader != nil {
		return s.WithStandby(reader), nil
	}
	return s, nil
}

// Hub returns the Hub of the Client, for what a Stream has no method for.
func (c *Client) Hub() *Hub { return c.hub }

// Groups returns the Groups of the Client, for what a Stream has no method for.
func (c *Client) Groups() *Groups { return c.groups }

// Close accepts no more appends, ends all calls of Work and all subscriptions, and returns when what was accepted is committed or
// refused. If ctx ends first it gives up: these appends end with ErrOutcomeUnknown, which is then Close's error too. It
// may be called more than once.
func (c *Client) Close(ctx context.Context) error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.stopWorking()
	gaveUp := c.stopAppenders(ctx)
	c.workers.Wait()
	c.stop()
	c.running.Wait()
	if gaveUp {
		return fmt.Errorf("close streams: %w", ErrOutcomeUnknown)
	}
	return nil
}

// stopAppenders returns when all have stopped, and whether it told them to give up.
func (c *Client) stopAppenders(ctx context.Context) (gaveUp bool) {
	c.mu.Lock()
	var stopping sync.WaitGroup
	for _, a := range c.appenders {
		stopping.Go(a.Stop)
	}
	c.mu.Unlock()
	stopped := make(chan struct{})
	go func() {
		stopping.Wait()
		c.ending.Wait()
		close(stopped)
	}()
	select {
	case <-stopped:
		return false
	case <-ctx.Done():
	}
	c.mu.Lock()
	for _, a := range c.appenders {
		a.Abandon()
	}
	c.mu.Unlock()
	<-stopped
	return true
}

// appender returns the one that appends to the stream, which it starts if there is none.
func (c *Client) appender(s *Stream) (*PartitionedAppender, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, ErrClosed
	}
	a := c.appenders[s.id]
	if a == nil {
		cfg := c.cfg.Appender
		cfg.Hub = c.hub
		a = NewPartitionedAppender(c.pool, s, PartitionedConfig{Appender: cfg})
		a.Start()
		c.appenders[s.id] = a
	}
	return a, nil
}

// forget stops the appender of a stream that was dropped.
func (c *Client) forget(s *Stream, a *PartitionedAppender) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.appenders[s.id] != a || c.closed {
		return
	}
	delete(c.appenders, s.id)
	c.ending.Go(a.Stop)
}

// begin has Close wait for a call of Work, and returns its context.
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

// do appends with the appender of the stream.
func (s *Stream) do(append func(*PartitionedAppender) (Appended, error)) (Appended, error) {
	if s.client == nil {
		return Appended{}, fmt.Errorf("append to stream %q: %w", s.name, ErrNotRunning)
	}
	a, err := s.client.appender(s)
	if err != nil {
		return Appended{}, fmt.Errorf("append to stream %q: %w", s.name, err)
	}
	at, err := append(a)
	if errors.Is(err, ErrNotFound) {
		s.client.forget(s, a)
	}
	return at, err
}
