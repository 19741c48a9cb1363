package fairness_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/eventstore"
	"github.com/tidewire/tidewire/internal/pg"
	"github.com/tidewire/tidewire/migrate"
	"github.com/tidewire/tidewire/stream"
)

// size is how many targets a field has.
type size struct{ streams, partitions, stores int }

// target is what a writer appends to: a partition, or an event store.
type target struct {
	name   string
	lock   int32 // number of its lock within pg.LockClass
	append func(ctx context.Context) error

	waits []time.Duration // from when an append was due to its answer
	late  []time.Duration // how late the writer woke, for appends that no earlier answer delayed
}

// field is all targets, on one pool.
type field struct {
	url     string
	pool    *pgxpool.Pool
	targets []*target // all partitions, then all event stores

	streams []*stream.Stream
	stores  []*eventstore.Store
	stop    context.CancelFunc
	running sync.WaitGroup
}

// payload is the payload of each append.
var payload = bytes.Repeat([]byte("x"), 256)

// storeLocks is the offset that eventstore adds to a store's id to get its lock number.
const storeLocks = 1 << 30

// newField makes the streams and event stores of a database and opens them as a server does.
func newField(ctx context.Context, url string, connections int, n size) (f *field, err error) {
	f = &field{url: url}
	if f.pool, err = pg.Open(ctx, pg.PoolConfig{URL: url, MaxConns: connections}); err != nil {
		return nil, err
	}
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	f.stop = stop
	defer func() {
		if err != nil {
			err = errors.Join(err, f.close())
		}
	}()
	if _, err := migrate.Up(ctx, f.pool); err != nil {
		return nil, err
	}
	hub := stream.NewHub(f.pool, stream.HubConfig{Announce: true})
	f.running.Go(func() { hub.Run(work) })
	for i := range n.streams {
		s, err := stream.Ensure(ctx, f.pool, fmt.Sprintf("fair-%d", i), stream.Options{Partitions: n.partitions})
		if err != nil {
			return nil, err
		}
		f.openStream(work, s, hub)
	}
	events, err := eventstore.Open(ctx, f.pool, eventstore.Config{})
	if err != nil {
		return nil, err
	}
	for i := range n.stores {
		s, err := events.Ensure(ctx, fmt.Sprintf("fair-%d", i))
		if err != nil {
			return nil, err
		}
		f.openStore(s)
	}
	return f, nil
}

func (f *field) openStream(work context.Context, s *stream.Stream, hub *stream.Hub) {
	appender := stream.NewPartitionedAppender(f.pool, s, stream.PartitionedConfig{Appender: stream.AppenderConfig{Hub: hub}})
	f.streams = append(f.streams, s)
	appender.Start()
	f.running.Go(func() { <-work.Done(); appender.Stop() })
	for i := range s.Partitions() {
		f.targets = append(f.targets, &target{
			name: fmt.Sprintf("%s/%d", s.Name(), i), lock: s.Partition(i).ID(),
			append: func(ctx context.Context) error {
				_, err := appender.Partition(i).Append(ctx, stream.Message{Payload: payload})
				return err
			},
		})
	}
}

func (f *field) openStore(s *eventstore.Store) {
	f.stores = append(f.stores, s)
	f.targets = append(f.targets, &target{
		name: "events " + s.Name(), lock: storeLocks + s.ID(),
		append: func(ctx context.Context) error {
			_, err := s.Append(ctx, eventstore.Event{Type: "Measured", Data: payload})
			return err
		},
	})
}

// close ends everything that was opened.
func (f *field) close() error {
	f.stop()
	f.running.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var err error
	for _, s := range f.stores {
		err = errors.Join(err, s.Close(ctx))
	}
	f.pool.Close()
	return err
}
