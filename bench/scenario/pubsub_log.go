package scenario

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/migrate"
	"github.com/tidewire/tidewire/queue"
	"github.com/tidewire/tidewire/stream"
)

// benchStream is the stream of the benchmarks, made anew for each run. A server
// serves no client a name that begins with "tidewire.".
const benchStream = "tidewire-bench"

// pubsubLog is Tidewire's own: one stream, group commit, and groups that read
// what one reader of the process has read.
var pubsubLog = sides{
	describe: "one stream, group commit; the groups of a process share its reads",
	ordered:  true,
	wire:     logWire,
	prepare: func(ctx context.Context, pool *pgxpool.Pool, _ QueueLoad) error {
		if _, err := migrate.Up(ctx, pool); err != nil {
			return err
		}
		return freshStream(ctx, pool)
	},
	writer: func(ctx context.Context, pool *pgxpool.Pool, load QueueLoad) (writeSide, error) {
		return newLogWriter(ctx, pool, load)
	},
	reader: func(ctx context.Context, pool *pgxpool.Pool, load QueueLoad) (readSide, error) {
		return newLogReader(ctx, pool, load)
	},
}

// logWriter appends to the stream for all writers.
type logWriter struct {
	appender *stream.Appender
	hub      *stream.Hub
	running  sync.WaitGroup
	stop     context.CancelFunc
}

func newLogWriter(ctx context.Context, pool *pgxpool.Pool, load QueueLoad) (*logWriter, error) {
	s, err := stream.Lookup(ctx, pool, benchStream)
	if err != nil {
		return nil, err
	}
	w := &logWriter{hub: stream.NewHub(pool, stream.HubConfig{Announce: true, AnnounceEvery: load.Linger})}
	w.appender = stream.NewAppender(pool, s, stream.AppenderConfig{
		Linger: load.Linger, OnCommit: func(int64) { w.hub.Notify(s) },
	})
	ctx, w.stop = context.WithCancel(context.WithoutCancel(ctx))
	w.running.Go(func() { w.hub.Run(ctx) })
	w.running.Go(func() { w.appender.Run(ctx) })
	return w, nil
}

func (w *logWriter) send(ctx context.Context, _ int, payloads [][]byte, done func(error)) error {
	messages := make([]stream.Message, len(payloads))
	for i, p := range payloads {
		messages[i].Payload = p
	}
	return w.appender.Submit(ctx, messages, func(_ int64, err error) { done(err) })
}

func (w *logWriter) close() {
	w.stop()
	w.running.Wait()
}

// logReader is the hub of all groups.
type logReader struct {
	load    QueueLoad
	stream  *stream.Stream
	hub     *stream.Hub
	groups  *stream.Groups
	running sync.WaitGroup
	stop    context.CancelFunc
}

func newLogReader(ctx context.Context, pool *pgxpool.Pool, load QueueLoad) (*logReader, error) {
	s, err := stream.Lookup(ctx, pool, benchStream)
	if err != nil {
		return nil, err
	}
	r := &logReader{
		load: load, stream: s, groups: stream.NewGroups(pool, stream.GroupsConfig{}),
		hub: stream.NewHub(pool, stream.HubConfig{PageMessages: load.ReadBatch}),
	}
	ctx, r.stop = context.WithCancel(context.WithoutCancel(ctx))
	r.running.Go(func() { r.hub.Run(ctx) })
	r.running.Go(func() { r.groups.Run(ctx) })
	return r, nil
}

func (r *logReader) open(ctx context.Context, number int) (source, error) {
	g, err := r.groups.Open(ctx, r.stream, fmt.Sprintf("group %d", number+1), stream.GroupOptions{})
	if err != nil {
		return nil, err
	}
	sub, err := g.Subscribe(ctx, r.hub)
	return &logSource{group: g, sub: sub}, err
}

func (r *logReader) close() {
	r.stop()
	r.running.Wait()
}

// logSource is one group.
type logSource struct {
	group    *stream.Group
	sub      *stream.Subscription
	payloads [][]byte
}

func (s *logSource) receive(ctx context.Context) ([][]byte, error) {
	page, err := s.sub.Next(ctx)
	s.payloads = s.payloads[:0]
	for i := range page {
		s.payloads = append(s.payloads, page[i].Payload)
	}
	return s.payloads, err
}

func (s *logSource) ack(ctx context.Context) error {
	_, err := s.group.Commit(ctx, s.sub.Position())
	return err
}

func (s *logSource) close() { s.sub.Close() }

// freshStream drops what an earlier run has left.
func freshStream(ctx context.Context, pool *pgxpool.Pool) error {
	if err := queue.Drop(ctx, pool, benchStream); err != nil && !errors.Is(err, queue.ErrNotFound) {
		return err
	}
	if _, err := stream.Ensure(ctx, pool, benchStream, stream.Options{}); err != nil {
		return err
	}
	if err := stream.Drop(ctx, pool, benchStream); err != nil {
		return err
	}
	_, err := stream.Ensure(ctx, pool, benchStream, stream.Options{})
	return err
}
