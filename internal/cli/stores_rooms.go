package cli

import (
	"context"
	"log/slog"
	"sync/atomic"

	"github.com/tidewire/tidewire/internal/gateway"
	"github.com/tidewire/tidewire/stream"
)

// roomStore is a stream with rooms as its keys.
type roomStore struct {
	log      *stream.Stream
	appender *stream.Appender
	logger   *slog.Logger
	lost     atomic.Int64 // positions
}

func (s *roomStore) Append(ctx context.Context, room string, payload []byte, done func(int64, error)) error {
	err := s.appender.Submit(ctx, []stream.Message{{Key: room, Payload: payload}}, func(position int64, err error) {
		done(position, gatewayError(err))
	})
	return gatewayError(err)
}

func (s *roomStore) After(ctx context.Context, room string, after, upTo int64, limit, bytes int) ([]gateway.StoredMessage, error) {
	return stored(s.log.ReadKeyPage(ctx, room, after, upTo, limit, bytes))
}

func (s *roomStore) Start(ctx context.Context, room string, upTo int64, n int) (int64, error) {
	after, err := s.log.KeyStart(ctx, room, upTo, n)
	return after, gatewayError(err)
}

func (s *roomStore) Head(ctx context.Context) (int64, error) {
	head, err := s.log.Head(ctx)
	return head, gatewayError(err)
}

func (s *roomStore) Check(ctx context.Context, position int64) error {
	return gatewayError(s.log.Check(ctx, position))
}

func (s *roomStore) FindLost(ctx context.Context) (after, upTo int64, err error) {
	gap, positions, err := s.log.FindLost(ctx)
	if err != nil || positions == 0 {
		return 0, 0, gatewayError(err)
	}
	s.lost.Add(positions)
	s.logger.Error("chats that were committed are lost: the standby that took over did not have them", "after", gap.After, "up to", gap.UpTo, "positions", positions)
	return gap.After, gap.UpTo, nil
}
