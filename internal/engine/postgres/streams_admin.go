package postgres

import (
	"context"
	"errors"

	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/stream"
)

// Create implements engine.Streams.
func (s *streams) Create(ctx context.Context, name string, opts *engine.StreamOptions) (engine.StreamOptions, error) {
	var want stream.Options
	if opts != nil {
		want = stream.Options{Keyed: opts.Keyed, Partitions: opts.Partitions}
	}
	found, err := stream.Ensure(ctx, s.pool, name, want)
	if opts == nil && errors.Is(err, stream.ErrExists) {
		found, err = stream.Lookup(ctx, s.pool, name)
	}
	if err != nil {
		return engine.StreamOptions{}, engineError(err)
	}
	s.made(found)
	return engine.StreamOptions{Keyed: found.Keyed(), Partitions: found.Partitions()}, nil
}

// List implements engine.Streams.
func (s *streams) List(ctx context.Context) ([]engine.StreamInfo, error) {
	all, err := stream.LookupEvery(ctx, s.pool)
	out := make([]engine.StreamInfo, len(all))
	for i, found := range all {
		out[i] = streamInfo(found)
	}
	return out, engineError(err)
}

func streamInfo(s *stream.Stream) engine.StreamInfo {
	return engine.StreamInfo{Name: s.Name(), Keyed: s.Keyed(), Partitions: s.Partitions(), Created: s.CreatedAt()}
}

// Info implements engine.Streams.
func (s *streams) Info(ctx context.Context, name string) (d engine.StreamDetails, err error) {
	found, err := stream.Lookup(ctx, s.pool, name)
	if err != nil {
		return d, engineError(err)
	}
	d.StreamInfo = streamInfo(found)
	info, err := found.Info(ctx)
	if err != nil {
		return d, engineError(err)
	}
	d.Head = info.Head
	return d, nil
}

// Drop implements engine.Streams.
func (s *streams) Drop(ctx context.Context, name string) error {
	found, err := s.finder.find(ctx, name)
	if err != nil {
		return engineError(err)
	}
	if err = stream.Drop(ctx, s.pool, name); err == nil {
		s.dropped(found)
	}
	return engineError(err)
}
