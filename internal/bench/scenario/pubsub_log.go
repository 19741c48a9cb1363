package scenario

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/tidewire/tidewire/migrate"
	"github.com/tidewire/tidewire/queue"
	"github.com/tidewire/tidewire/stream"
)

// benchStream is the stream of the benchmarks, created again for each run. It
// does not begin with "tidewire.", since a server rejects such names from
// clients.
const benchStream = "tidewire-bench"

// pubsubLog is Tidewire's publish/subscribe: a stream with group commit, and
// groups that share the reads of their process.
var pubsubLog = sides{
	describe: "a stream, group commit; the groups of a process share its reads",
	ordered:  true,
	wire:     logWire,
	many:     true,
	prepare: func(ctx context.Context, pool *pgxpool.Pool, load QueueLoad) error {
		return freshStreams(ctx, pool, load, func(name string) error {
			_, err := stream.Ensure(ctx, pool, name, stream.Options{})
			return err
		})
	},
	writer: func(ctx context.Context, pool *pgxpool.Pool, load QueueLoad) (writeSide, error) {
		return newLogWriter(ctx, pool, load)
	},
	reader: func(ctx context.Context, pool *pgxpool.Pool, load QueueLoad) (readSide, error) {
		return newLogReader(ctx, pool, load)
	},
	stored: func(ctx context.Context, pool *pgxpool.Pool, load QueueLoad) (storedSide, error) {
		streams, err := lookupStreams(ctx, pool, load)
		return logStored(streams), err
	},
}

// lookupMost is the number of streams that one query looks up.
const lookupMost = 1000

// lookupStreams finds all streams of the load.
func lookupStreams(ctx context.Context, pool *pgxpool.Pool, load QueueLoad) (all []*stream.Stream, err error) {
	names := make([]string, load.Streams)
	for n := range names {
		names[n] = load.streamName(n)
	}
	for some := range slices.Chunk(names, lookupMost) {
		found, err := stream.LookupAll(ctx, pool, some)
		if err != nil {
			return nil, err
		}
		for _, name := range some {
			if found[name] == nil {
				return nil, fmt.Errorf("look up stream %q: %w", name, stream.ErrNotFound)
			}
			all = append(all, found[name])
		}
	}
	return all, nil
}

// logStored reads the streams back.
type logStored []*stream.Stream

func (s logStored) count() int { return len(s) }

// The limits of a page that is read back.
const (
	storedMessages = 1000
	storedBytes    = 4 << 20
)

func (s logStored) read(ctx context.Context, n int, each func(position int64, payload []byte)) (storedEnd, error) {
	for after := int64(0); ; {
		page, err := s[n].ReadPage(ctx, after, storedMessages, storedBytes)
		if err != nil {
			return storedEnd{}, err
		}
		for i := range page {
			each(page[i].Position, page[i].Payload)
			after = page[i].Position
		}
		if len(page) == 0 {
			break
		}
	}
	info, err := s[n].Info(ctx)
	// A stream in the shared table has no segments, and no gaps in its positions (decision 26).
	return storedEnd{head: info.Head, dense: info.Segments == 0}, err
}

// logWriter appends to the streams for all writers of a process.
type logWriter struct {
	appenders []*stream.Appender
	hub       *stream.Hub
	running   sync.WaitGroup
	stop      context.CancelFunc
}

func newLogWriter(ctx context.Context, pool *pgxpool.Pool, load QueueLoad) (*logWriter, error) {
	w := &logWriter{hub: stream.NewHub(pool, stream.HubConfig{Announce: true, AnnounceEvery: load.Linger})}
	streams, err := lookupStreams(ctx, pool, load)
	if err != nil {
		return nil, err
	}
	for _, s := range streams {
		w.appenders = append(w.appenders, stream.NewAppender(pool, s, stream.AppenderConfig{
			Linger: load.Linger, Hub: w.hub,
		}))
	}
	ctx, w.stop = context.WithCancel(context.WithoutCancel(ctx))
	w.running.Go(func() { w.hub.Run(ctx) })
	for _, a := range w.appenders {
		a.Start()
		w.running.Go(func() { <-ctx.Done(); a.Stop() })
	}
	return w, nil
}

func (w *logWriter) send(ctx context.Context, _, to int, payloads [][]byte, done func(error)) error {
	messages := make([]stream.Message, len(payloads))
	for i, p := range payloads {
		messages[i].Payload = p
	}
	return w.appenders[to].Submit(ctx, messages, func(_ stream.Appended, err error) { done(err) })
}

func (w *logWriter) close() {
	w.stop()
	w.running.Wait()
}

// logReader is the hub of all groups of a process.
type logReader struct {
	load    QueueLoad
	streams []*stream.Stream
	hub     *stream.Hub
	groups  *stream.Groups
	running sync.WaitGroup
	stop    context.CancelFunc
}

func newLogReader(ctx context.Context, pool *pgxpool.Pool, load QueueLoad) (*logReader, error) {
	r := &logReader{
		load: load, groups: stream.NewGroups(pool, stream.GroupsConfig{}),
		hub: stream.NewHub(pool, stream.HubConfig{PageMessages: load.ReadBatch}),
	}
	var err error
	if r.streams, err = lookupStreams(ctx, pool, load); err != nil {
		return nil, err
	}
	ctx, r.stop = context.WithCancel(context.WithoutCancel(ctx))
	r.running.Go(func() { r.hub.Run(ctx) })
	r.running.Go(func() { r.groups.Run(ctx) })
	return r, nil
}

func (r *logReader) open(ctx context.Context, number int) (source, error) {
	g, err := r.groups.Open(ctx, r.streams[r.load.streamOf(number)], groupName(r.load, number), stream.GroupOptions{})
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

// groupName returns the name of a reader's group.
func groupName(l QueueLoad, source int) string { return fmt.Sprintf("group %d", source%l.Groups+1) }

// freshStreams drops the streams and queues of an earlier run, and creates those of
// this one.
func freshStreams(ctx context.Context, pool *pgxpool.Pool, load QueueLoad, make func(name string) error) error {
	if _, err := migrate.Up(ctx, pool); err != nil {
		return err
	}
	left, err := stream.LookupEvery(ctx, pool)
	if err != nil {
		return err
	}
	var dropping, making errgroup.Group
	dropping.SetLimit(prepareConcurrency)
	making.SetLimit(prepareConcurrency)
	for _, s := range left {
		if s.Name() != benchStream && !strings.HasPrefix(s.Name(), benchStream+"-") {
			continue
		}
		dropping.Go(func() error {
			err := queue.Drop(ctx, pool, s.Name())
			if errors.Is(err, queue.ErrNotFound) {
				err = stream.Drop(ctx, pool, s.Name())
			}
			return err
		})
	}
	if err := dropping.Wait(); err != nil {
		return err
	}
	for n := range load.Streams {
		making.Go(func() error { return make(load.streamName(n)) })
	}
	return making.Wait()
}

// prepareConcurrency is the number of streams that are dropped, or created, at the same time.
const prepareConcurrency = 4
