package postgres

import (
	"context"
	"errors"
	"log/slog"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/stream"
)

// rooms is engine.Rooms on a stream with the rooms as keys.
type rooms struct {
	log      *stream.Stream
	appender *stream.Appender
	hub      *stream.Hub // of rooms alone: it reports which chats a failover has lost
	logger   *slog.Logger
	pool     *pgxpool.Pool
	retains  bool // nothing else in the process deletes what streams do not keep
}

// run runs until ctx ends and everything accepted by then is written.
func (s *rooms) run(ctx context.Context) {
	reading, stopReading := context.WithCancel(context.WithoutCancel(ctx))
	var readers sync.WaitGroup
	readers.Go(func() { s.hub.Run(reading) })
	if s.retains {
		readers.Go(func() { stream.NewRetentionWorker(s.pool, stream.RetentionWorkerConfig{Log: s.logger}).Run(reading) })
	}
	s.appender.Start()
	<-ctx.Done()
	s.appender.Stop()
	stopReading()
	readers.Wait()
}

func (s *rooms) Append(ctx context.Context, room string, as *engine.RequestID, payload []byte, done func(int64, bool, error)) error {
	messages := []stream.Message{{Key: room, Payload: payload}}
	answer := func(at stream.Appended, err error) { done(at.First, at.Duplicate, engineError(err)) }
	if as == nil {
		return engineError(s.appender.Submit(ctx, messages, answer))
	}
	return engineError(s.appender.SubmitAs(ctx, stream.RequestID{Client: as.Client, Sequence: as.Sequence}, messages, answer))
}

func (s *rooms) After(ctx context.Context, room string, after, upTo int64, limit, bytes int) ([]engine.RoomMessage, error) {
	page, err := s.log.ReadKeyPage(ctx, room, after, upTo, limit, bytes)
	for large, is := errors.AsType[*stream.TooLargeError](err); is; large, is = errors.AsType[*stream.TooLargeError](err) {
		s.logger.Warn("a chat is larger than this server reads, and is left out", "room", room, "position", large.Position, "bytes", large.Size)
		page, err = s.log.ReadKeyPage(ctx, room, large.Position, upTo, limit, bytes)
	}
	if err = engineError(err); err == nil {
		err = s.kept(ctx, after) // after the read: what was deleted before it counts
	}
	if err != nil {
		return nil, err
	}
	return stored(page), nil
}

// kept returns a TooOldError if messages after a position were deleted.
func (s *rooms) kept(ctx context.Context, after int64) error {
	if after == 0 {
		return nil
	}
	oldest, err := s.log.Oldest(ctx)
	if err == nil && after < oldest-1 {
		return &engine.TooOldError{Oldest: oldest}
	}
	return engineError(err)
}

func (s *rooms) Start(ctx context.Context, room string, upTo int64, n int) (int64, error) {
	after, err := s.log.KeyStart(ctx, room, upTo, n)
	return after, engineError(err)
}

func (s *rooms) FromEnd(ctx context.Context, room string, after int64, n int) (int64, error) {
	position, err := s.log.KeyFromEnd(ctx, room, after, n)
	return position, engineError(err)
}

func (s *rooms) Head(ctx context.Context) (int64, error) {
	head, err := s.log.Head(ctx)
	return head, engineError(err)
}

func (s *rooms) Check(ctx context.Context, position int64) error {
	if err := s.log.Check(ctx, position); err != nil {
		return engineError(err)
	}
	return s.kept(ctx, position)
}

func (s *rooms) Follow(ctx context.Context, after int64, receive func([]engine.RoomMessage)) error {
	for {
		err := s.follow(ctx, &after, receive)
		if old, ok := errors.AsType[*stream.TooOldError](err); ok {
			s.logger.Warn("chats were deleted before members of this server got them", "after", after, "up to", old.Oldest-1)
			after = old.Oldest - 1
		} else if large, ok := errors.AsType[*stream.TooLargeError](err); ok {
			s.logger.Warn("a chat is larger than this server reads, and is left out", "position", large.Position, "bytes", large.Size)
			after = large.Position
		} else {
			return engineError(err)
		}
	}
}

func (s *rooms) follow(ctx context.Context, after *int64, receive func([]engine.RoomMessage)) error {
	sub, err := s.hub.Subscribe(ctx, s.log, stream.After(*after))
	if err != nil {
		return err
	}
	defer sub.Close()
	var page []engine.RoomMessage
	for {
		messages, err := sub.Next(ctx)
		if err != nil {
			return err
		}
		page = page[:0]
		for _, m := range messages {
			page = append(page, engine.RoomMessage{Room: m.Key, Position: m.Position, Payload: m.Payload})
		}
		receive(page)
		*after = sub.Position()
		clear(page)
	}
}

func stored(messages []stream.Message) []engine.RoomMessage {
	out := make([]engine.RoomMessage, len(messages))
	for i, m := range messages {
		out[i] = engine.RoomMessage{Position: m.Position, Payload: m.Payload}
	}
	return out
}
