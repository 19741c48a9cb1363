package cli

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/gateway"
	"github.com/tidewire/tidewire/stream"
)

// streamAdmin makes and drops the streams.
type streamAdmin struct {
	pool    *pgxpool.Pool
	made    func(s *stream.Stream)    // is told of what may be found now
	dropped func(gone *stream.Stream) // is told of what is not there any more
}

// Create implements gateway.StreamAdmin.
func (a streamAdmin) Create(ctx context.Context, name string, opts *gateway.StreamOptions) (gateway.StreamOptions, error) {
	var want stream.Options
	if opts != nil {
		want = stream.Options{Keyed: opts.Keyed, Partitions: opts.Partitions}
	}
	s, err := stream.Ensure(ctx, a.pool, name, want)
	if opts == nil && errors.Is(err, stream.ErrOptions) {
		s, err = stream.Lookup(ctx, a.pool, name)
	}
	if err != nil {
		return gateway.StreamOptions{}, gatewayError(err)
	}
	a.made(s)
	return gateway.StreamOptions{Keyed: s.Keyed(), Partitions: s.Partitions()}, nil
}

// List implements gateway.StreamAdmin.
func (a streamAdmin) List(ctx context.Context) ([]gateway.StreamInfo, error) {
	all, err := stream.List(ctx, a.pool)
	out := make([]gateway.StreamInfo, len(all))
	for i, s := range all {
		out[i] = streamInfo(s)
	}
	return out, gatewayError(err)
}

func streamInfo(s *stream.Stream) gateway.StreamInfo {
	return gateway.StreamInfo{Name: s.Name(), Keyed: s.Keyed(), Partitions: s.Partitions(), Created: s.CreatedAt()}
}

// Info implements gateway.StreamAdmin.
func (a streamAdmin) Info(ctx context.Context, name string) (d gateway.StreamDetails, err error) {
	s, err := stream.Lookup(ctx, a.pool, name)
	if err != nil {
		return d, gatewayError(err)
	}
	d.StreamInfo = streamInfo(s)
	info, err := s.Info(ctx)
	if err != nil {
		return d, gatewayError(err)
	}
	d.Head = info.Head
	return d, nil
}

// Groups implements gateway.StreamAdmin.
func (a streamAdmin) Groups(ctx context.Context, name, after string, limit int) ([]gateway.GroupInfo, error) {
	s, err := stream.Lookup(ctx, a.pool, name)
	if err != nil {
		return nil, gatewayError(err)
	}
	groups, err := stream.ListGroupsAfter(ctx, a.pool, s, after, limit)
	out := make([]gateway.GroupInfo, len(groups))
	for i, g := range groups {
		out[i] = gateway.GroupInfo{Name: g.Name, Offset: g.Offset, Lag: g.Lag}
	}
	return out, gatewayError(err)
}

// Drop implements gateway.StreamAdmin.
func (a streamAdmin) Drop(ctx context.Context, name string) error {
	found, err := (&finder{pool: a.pool}).find(ctx, name)
	if err != nil {
		return gatewayError(err)
	}
	if err = stream.Drop(ctx, a.pool, name); err == nil {
		a.dropped(found)
	}
	return gatewayError(err)
}
