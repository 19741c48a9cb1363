package stream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/pg"
	"github.com/tidewire/tidewire/migrate"
)

// Config configures a Client. The zero value is right for most programs.
type Config struct {
	// Appender configures how messages are written. Its Hub is replaced by the Client's.
	Appender AppenderConfig
	// Hub configures subscriptions. A Client always announces its appends and the calls of Notify to other
	// processes.
	Hub HubConfig
	// Groups configures how offsets are written.
	Groups GroupsConfig
	// Retention configures how retention is applied. NoRetention leaves that to other processes.
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

// Client runs everything that a process needs to append to streams and to subscribe to them: an Appender for
// each stream with appends, a Hub, the Groups and a RetentionWorker, on one pool. A process needs one.
// Streams returned by the Client can be appended to and subscribed to until Close. Safe for concurrent use.
type Client struct {
	cfg    Config
	pool   *pgxpool.Pool
	hub    *Hub
	groups *Groups

	serving context.Context // for the hub, the groups and the retention worker
	stop    context.CancelFunc
	running sync.WaitGroup

	working     context.Context // for calls of Work
	stopWorking context.CancelFunc

	closing  sync.Once // of Close
	closeErr error

	mu        sync.Mutex // guards the fields below
	closed    bool
	appenders map[int32]*PartitionedAppender // by the ID of their streams
	workers   sync.WaitGroup                 // calls of Work; none begins after closed is true
	ending    sync.WaitGroup                 // appenders of dropped streams
}

// Open returns a Client, which must be closed. The database needs the schema that package migrate creates;
// without it the error is one of that package, which says what to do.
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

// Ensure is like the function Ensure, but the Stream can be appended to and subscribed to.
func (c *Client) Ensure(ctx context.Context, name string, opts Options) (*Stream, error) {
	return c.with(Ensure(ctx, c.pool, name, opts))
}

// Lookup is like the function Lookup, but the Stream can be appended to and subscribed to.
func (c *Client) Lookup(ctx context.Context, name string) (*Stream, error) {
	return c.with(Lookup(ctx, c.pool, name))
}

// Drop is the function Drop.
func (c *Client) Drop(ctx context.Context, name string) error { return Drop(ctx, c.pool, name) }

// with binds the stream to the client.
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

// Hub returns the Hub of the Client, for uses for which a Stream has no method.
func (c *Client) Hub() *Hub { return c.hub }

// Groups returns the Groups of the Client, for uses for which a Stream has no method.
func (c *Client) Groups() *Groups { return c.groups }

// Close accepts no more appends, ends all calls of Work and all subscriptions, and returns when all accepted
// appends are committed or rejected, and all handlers of Work have returned. If ctx ends first, Close abandons
// the rest: the remaining appends end with ErrOutcomeUnknown, handlers that still run cannot commit offsets any
// more, and Close returns ErrOutcomeUnknown. A further call waits for the first, and returns the same error.
// A handler must not call it: Close would wait for that handler.
func (c *Client) Close(ctx context.Context) error {
	c.closing.Do(func() { c.closeErr = c.close(ctx) })
	return c.closeErr
}

func (c *Client) close(ctx context.Context) error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.stopWorking()
	gaveUp := c.stopAppenders(ctx)
	handled := pg.Wait(ctx, &c.workers)
	c.stop()
	c.running.Wait()
	if gaveUp || !handled {
		return fmt.Errorf("close streams: %w", ErrOutcomeUnknown)
	}
	return nil
}

// stopAppenders returns when all Appenders have stopped, and reports whether it abandoned them.
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

// appender returns the stream's appender, and starts one if there is none.
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

// begin registers a call of Work, for which Close then waits, and returns its context.
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
