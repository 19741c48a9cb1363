package eventstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/migrate"
)

// Client opens and runs the event stores of a process, on one pool. Each Store that it has opened runs until Close. Use one
// Client per process, so that all callers share commits. Safe for concurrent use.
type Client struct {
	cfg  Config
	pool *pgxpool.Pool

	mu     sync.Mutex // guards the fields below
	closed bool
	stores map[int32]*Store // by their IDs
}

// Open returns a Client, which must be closed. The database must have the schema that package migrate makes; otherwise
// the error is one of that package, and says what to do.
func Open(ctx context.Context, pool *pgxpool.Pool, cfg Config) (*Client, error) {
	status, err := migrate.Inspect(ctx, pool)
	if err = cmp.Or(err, status.Err()); err != nil {
		return nil, fmt.Errorf("open event stores: %w", err)
	}
	return &Client{cfg: cfg, pool: pool, stores: make(map[int32]*Store)}, nil
}

// Ensure returns the store of that name, and creates it if it does not exist; an
// empty name is DefaultName. Any number of processes may call it at the same time.
// The name has at most MaxName bytes, valid UTF-8 without NUL; else the error is
// ErrInvalid.
func (c *Client) Ensure(ctx context.Context, name string) (*Store, error) {
	return c.open(name, func(s *Store) error { return s.ensure(ctx) })
}

// Lookup returns the store of that name, or ErrNotFound.
func (c *Client) Lookup(ctx context.Context, name string) (*Store, error) {
	return c.open(name, func(s *Store) error { return s.lookup(ctx) })
}

// Drop calls the function Drop.
func (c *Client) Drop(ctx context.Context, name string) error { return Drop(ctx, c.pool, name) }

// open returns the running Store for the store that find looks up, or starts a new one.
func (c *Client) open(name string, find func(*Store) error) (*Store, error) {
	s, err := newStore(c.pool, name, c.cfg)
	if err != nil {
		return nil, err
	}
	if err := find(s); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, fmt.Errorf("open event store %q: %w", s.name, ErrClosed)
	}
	if running := c.stores[s.id]; running != nil && !running.closed.Load() {
		return running, nil
	}
	c.stores[s.id] = s
	s.forget = func() { c.forget(s) }
	s.start()
	return s, nil
}

// forget removes a closed Store.
func (c *Client) forget(s *Store) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stores[s.id] == s {
		delete(c.stores, s.id)
	}
}

// Close closes all stores in parallel: see Store.Close.
func (c *Client) Close(ctx context.Context) error {
	c.mu.Lock()
	c.closed = true
	stores := slices.Collect(maps.Values(c.stores))
	c.mu.Unlock()
	errs := make([]error, len(stores))
	var closing sync.WaitGroup
	for i, s := range stores {
		closing.Go(func() { errs[i] = s.Close(ctx) })
	}
	closing.Wait()
	return errors.Join(errs...)
}
