package postgres

import (
	"context"

	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/stream"
)

// Groups implements engine.Streams.
func (s *streams) Groups(ctx context.Context, name, after string, limit int) ([]engine.GroupInfo, error) {
	found, err := stream.Lookup(ctx, s.pool, name)
	if err != nil {
		return nil, engineError(err)
	}
	groups, err := found.GroupsAfter(ctx, after, limit)
	out := make([]engine.GroupInfo, len(groups))
	for i, g := range groups {
		out[i] = engine.GroupInfo{Name: g.Name, Offset: g.Offset, Lag: g.Lag}
	}
	return out, engineError(err)
}

// SeekGroup implements engine.Streams.
func (s *streams) SeekGroup(ctx context.Context, name, group string, to engine.Start) (int64, error) {
	found, err := s.finder.find(ctx, name)
	if err != nil {
		return 0, engineError(err)
	}
	offset, err := found.SeekGroup(ctx, group, streamStart(to))
	return offset, engineError(err)
}

// streamStart is where to begin, without a group.
func streamStart(from engine.Start) stream.Start {
	switch {
	case !from.At.IsZero():
		return stream.AtTime(from.At)
	case from.End:
		return stream.AtEnd()
	case from.After != 0:
		return stream.After(from.After)
	}
	return stream.Start{} // the oldest message kept
}

// DropGroup implements engine.Streams.
func (s *streams) DropGroup(ctx context.Context, name, group string) error {
	found, err := s.finder.find(ctx, name)
	if err != nil {
		return engineError(err)
	}
	if err = found.DropGroup(ctx, group); err == nil {
		if g, open := s.opened.peek(groupKey(name, group)); open {
			s.opened.forget(groupKey(name, group), g)
		}
	}
	return engineError(err)
}

// Retention implements engine.Streams.
func (s *streams) Retention(ctx context.Context, name string) (engine.Retention, error) {
	found, err := s.finder.find(ctx, name)
	if err != nil {
		return engine.Retention{}, engineError(err)
	}
	r, err := found.Retention(ctx)
	return engine.Retention(r), engineError(err)
}

// SetRetention implements engine.Streams.
func (s *streams) SetRetention(ctx context.Context, name string, r engine.Retention) error {
	found, err := s.finder.find(ctx, name)
	if err == nil {
		err = found.SetRetention(ctx, stream.Retention(r))
	}
	return engineError(err)
}
