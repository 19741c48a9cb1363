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

// Client is what a process runs to use event stores, on one pool: each Store that it has opened runs until Close. A process
// needs one, so that its callers share commits. Safe for concurrent use.
type Client struct {
	cfg  Config
	pool *pgxpool.Pool

	mu     sync.Mutex // guards the fields below
	closed bool
	stores map[int32]*Store // by their IDs
}

// Open returns a Client on a database with the schema that package migrate makes; else the error is one of that
// package, which says what to do. It must be closed.
func Open(ctx context.Context, pool *pgxpool.Pool, cfg Config) (*Client, error) {
	status, err := migrate.Inspect(ctx, pool)
	if err = cmp.Or(err, status.Err()); err != nil {
		return nil, fmt.Errorf("open event stores: %w", err)
	}
	return &Client{cfg: cfg, pool: pool, stores: make(map[int32]*Store)}, nil
}

// Ensure returns the store of that name, and makes it if there is none; an
// empty name is DefaultName. It may be called by any number of processes at
// once. The name has 1 to MaxName bytes, valid UTF-8 without NUL; else the
// error is ErrInvalid.
func (c *Client) Ensure(ctx context.Context, name string) (*Store, error) {
	return c.open(name, func(s *Store) error { return s.ensure(ctx) })
}

// Lookup returns the store of that name, or ErrNotFound.
func (c *Client) Lookup(ctx context.Context, name string) (*Store, error) {
	return c.open(name, func(s *Store) error { return s.lookup(ctx) })
}

// Drop is the function Drop.
func (c *Client) Drop(ctx context.Context, name string) error { return Drop(ctx, c.pool, name) }

// open returns the store that find finds: the one that runs, or else a new one.
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

// forget is told that a store is closed.
func (c *Client) forget(s *Store) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stores[s.id] == s {
		delete(c.stores, s.id)
	}
}

// Close is Store.Close for all stores, at the same time.
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
