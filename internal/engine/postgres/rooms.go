package postgres

import (
	"context"
	"log/slog"
	"sync/atomic"

	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/stream"
)

// rooms is engine.Rooms on a stream with the rooms as keys.
type rooms struct {
	log      *stream.Stream
	appender *stream.Appender
	logger   *slog.Logger
	lost     atomic.Int64 // positions that failovers have lost
}

func (s *rooms) Append(ctx context.Context, room string, payload []byte, done func(int64, error)) error {
	err := s.appender.Submit(ctx, []stream.Message{{Key: room, Payload: payload}}, func(at stream.Appended, err error) {
		done(at.First, engineError(err))
	})
	return engineError(err)
}

func (s *rooms) After(ctx context.Context, room string, after, upTo int64, limit, bytes int) ([]engine.RoomMessage, error) {
	return stored(s.log.ReadKeyPage(ctx, room, after, upTo, limit, bytes))
}

func (s *rooms) Start(ctx context.Context, room string, upTo int64, n int) (int64, error) {
	after, err := s.log.KeyStart(ctx, room, upTo, n)
	return after, engineError(err)
}

func (s *rooms) Head(ctx context.Context) (int64, error) {
	head, err := s.log.Head(ctx)
	return head, engineError(err)
}

func (s *rooms) Check(ctx context.Context, position int64) error {
	return engineError(s.log.Check(ctx, position))
}

func (s *rooms) FindLost(ctx context.Context) (after, upTo int64, err error) {
	gap, positions, err := s.log.FindLost(ctx)
	if err != nil || positions == 0 {
		return 0, 0, engineError(err)
	}
	s.lost.Add(positions)
	s.logger.Error("chats that were committed are lost: the standby that took over did not have them", "after", gap.After, "up to", gap.UpTo, "positions", positions)
	return gap.After, gap.UpTo, nil
}

func stored(messages []stream.Message, err error) ([]engine.RoomMessage, error) {
	out := make([]engine.RoomMessage, len(messages))
	for i, m := range messages {
		out[i] = engine.RoomMessage{Position: m.Position, Payload: m.Payload}
	}
	return out, engineError(err)
}
