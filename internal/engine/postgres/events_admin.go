package postgres

import (
	"cmp"
	"context"

	"github.com/tidewire/tidewire/eventstore"
)

// Create implements engine.Events. The store is opened when it is first used.
func (s *events) Create(ctx context.Context, name string) error {
	return engineError(eventstore.Create(ctx, s.pool, name))
}

// List implements engine.Events.
func (s *events) List(ctx context.Context) ([]string, error) {
	names, err := eventstore.List(ctx, s.pool)
	return names, engineError(err)
}

// Head implements engine.Events.
func (s *events) Head(ctx context.Context, name string) (head int64, err error) {
	err = s.with(ctx, name, func(store *eventstore.Store) (err error) {
		head, err = store.Head(ctx)
		return err
	})
	return head, err
}

// Types implements engine.Events.
func (s *events) Types(ctx context.Context, name, prefix, after string, limit int) (types []string, err error) {
	err = s.with(ctx, name, func(store *eventstore.Store) (err error) {
		types, err = store.Types(ctx, prefix, after, limit)
		return err
	})
	return types, err
}

// Drop implements engine.Events.
func (s *events) Drop(ctx context.Context, name string) error {
	err := eventstore.Drop(ctx, s.pool, name)
	if err == nil {
		if store, open := s.open.peek(cmp.Or(name, eventstore.DefaultName)); open {
			s.forget(store)
		}
	}
	return engineError(err)
}
