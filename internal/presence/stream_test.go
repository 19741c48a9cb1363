package presence_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidewire/tidewire/internal/engine/postgres"
	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/internal/presence"
	"github.com/tidewire/tidewire/internal/presence/presencetest"
	"github.com/tidewire/tidewire/internal/testkit"
	"github.com/tidewire/tidewire/migrate"
	"github.com/tidewire/tidewire/stream"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

var migrated = pgtest.NewTemplate("migrated", func(ctx context.Context, pool *pgxpool.Pool) error {
	_, err := migrate.Up(ctx, pool)
	return err
})

// server is an engine with a Recorder.
type server struct {
	*presence.Recorder
	store *postgres.Engine
}

func begin(t *testing.T, db pgtest.DB, cfg presence.Config) server {
	t.Helper()
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	store, err := postgres.Open(t.Context(), postgres.Config{Pool: db.Pool, URL: db.URL, Stores: true, Metrics: prometheus.NewRegistry(), Log: log})
	if err != nil {
		t.Fatal(err)
	}
	cfg.Stream, cfg.Publisher, cfg.Pool, cfg.Metrics, cfg.Log = "who", store.Serves().Streams, db.Pool, prometheus.NewRegistry(), log
	r, err := presence.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.WithoutCancel(t.Context())
	store.Run(ctx)
	r.Run(ctx)
	s := server{r, store}
	return s
}

func (s server) end(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
	defer cancel()
	if err := s.Stop(ctx); err != nil {
		t.Error(err)
	}
	if err := s.store.Stop(ctx); err != nil {
		t.Error(err)
	}
}

// reader reads all partitions of the stream.
type reader struct {
	pool     *pgxpool.Pool
	after    []int64
	pictures []presencetest.Picture
}

// read reads on to the end.
func (r *reader) read(t *testing.T) {
	t.Helper()
	s, err := stream.Lookup(t.Context(), r.pool, "who")
	if err != nil {
		t.Fatal(err)
	}
	if r.after == nil {
		n := max(1, s.Partitions())
		r.after, r.pictures = make([]int64, n), make([]presencetest.Picture, n)
	}
	for i := range r.after {
		for {
			page, err := s.Partition(i).Read(t.Context(), r.after[i], 1000)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range page {
				r.pictures[i].Apply(m.Key, m.Payload)
				r.after[i] = m.Position
			}
			if len(page) == 0 {
				break
			}
		}
	}
}

func (r *reader) names() (all []string) {
	for i := range r.pictures {
		all = append(all, r.pictures[i].Names()...)
	}
	slices.Sort(all)
	return all
}

// faults reports what contradicts itself, and returns how many events were lost. Each partition tells of all.
func (r *reader) faults(t *testing.T) (lost uint64) {
	t.Helper()
	for i := range r.pictures {
		for _, fault := range r.pictures[i].Faults {
			t.Errorf("partition %d: %s", i, fault)
		}
		lost = r.pictures[i].Lost
	}
	return lost
}

// await reads until there is what is wanted.
func (r *reader) await(t *testing.T, what string, want func() bool) {
	t.Helper()
	testkit.Eventually(t, what, func() bool { r.read(t); return want() })
}

// TestRecorder_ARandomCrowd: readers know exactly who is there, with and without partitions, and although events are lost.
func TestRecorder_ARandomCrowd(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ partitions, maxWaiting int }{"whole": {0, 0}, "with losses": {0, 40}, "partitions": {4, 0}, "partitions with losses": {4, 40}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := migrated.Open(t)
			if c.partitions > 0 {
				if _, err := stream.Ensure(t.Context(), db.Pool, "who", stream.Options{Partitions: c.partitions}); err != nil {
					t.Fatal(err)
				}
			}
			s := begin(t, db, presence.Config{Node: "n", MaxWaiting: c.maxWaiting})
			var mu sync.Mutex
			var want []string
			var crowd sync.WaitGroup
			for user := range 20 {
				crowd.Go(func() {
					there := live(s.Recorder, fmt.Sprintf("u%d", user))
					mu.Lock()
					defer mu.Unlock()
					want = append(want, there...)
				})
			}
			crowd.Wait()
			slices.Sort(want)
			r := reader{pool: db.Pool}
			r.await(t, "a crowd", func() bool { return slices.Equal(r.names(), want) })
			if lost := r.faults(t); lost > 0 != (c.maxWaiting > 0) {
				t.Errorf("%d events are lost", lost)
			}
			s.end(t)
			r.read(t)
			if got := r.pictures[0].Types; got["node_started"] != 1 || got["node_stopped"] != 1 || len(r.names()) > 0 {
				t.Errorf("%v, and then there are %v", got, r.names())
			}
		})
	}
}

// live has a user connect, join and leave at random, and returns what is left as the Strings of entries.
func live(r *presence.Recorder, user string) (there []string) {
	for range 30 {
		c := r.Connected("")
		named := ""
		rooms := make(map[string]bool)
		for range rand.IntN(40) {
			switch room := fmt.Sprintf("r%d", rand.IntN(5)); {
			case rand.IntN(10) == 0:
				c.Named(user)
				named = user
			case rooms[room]:
				delete(rooms, room)
				c.Left(room, user)
			default:
				rooms[room] = true
				c.Joined(room, user)
			}
		}
		if rand.IntN(3) > 0 {
			c.Disconnected()
			continue
		}
		there = append(there, presencetest.Entry{User: named}.String())
		for room := range rooms {
			there = append(there, presencetest.Entry{User: user, Room: room}.String())
		}
	}
	return there
}

// quick are the times of servers in tests that have to wait until one is gone.
func quick(node string) presence.Config {
	return presence.Config{Node: node, Beat: 50 * time.Millisecond, GoneAfter: time.Second}
}

// TestRecorder_ServerGone: another server tells that one is gone, in each partition; one that lives all the same tells anew who is there.
func TestRecorder_ServerGone(t *testing.T) {
	t.Parallel()
	db := migrated.Open(t)
	if _, err := stream.Ensure(t.Context(), db.Pool, "who", stream.Options{Partitions: 3}); err != nil {
		t.Fatal(err)
	}
	slow := quick("slow")
	slow.Beat = time.Hour // so it counts as gone, and does not notice
	one, other := begin(t, db, slow), begin(t, db, quick("other"))
	for i := range 20 {
		one.Connected(fmt.Sprintf("slow%d", i)).Joined("lobby", "x")
	}
	other.Connected("ann")
	r := reader{pool: db.Pool}
	r.await(t, "both are there", func() bool { return len(r.names()) == 41 })
	r.await(t, "one is gone", func() bool { return slices.Equal(r.names(), []string{`"ann" in ""`}) })
	for i := range r.pictures {
		if got := r.pictures[i].Types["node_left"]; got != 1 {
			t.Errorf("partition %d has %d node_left, want 1", i, got)
		}
	}
	one.Connected("too late") // is told, and not believed for long
	presence.BeatNow(one.Recorder)
	r.await(t, "one is back", func() bool { return len(r.names()) == 42 })
	r.faults(t)
	one.end(t)
	other.end(t)
}

// TestRecorder_StreamDropped: the stream is made again, and whoever is there is told anew.
func TestRecorder_StreamDropped(t *testing.T) {
	t.Parallel()
	for _, partitions := range []int{0, 3} {
		t.Run(fmt.Sprint(partitions), func(t *testing.T) {
			t.Parallel()
			db := migrated.Open(t)
			s := begin(t, db, quick("n"))
			defer s.end(t)
			for i := range 10 {
				s.Connected(fmt.Sprint("u", i))
			}
			r := reader{pool: db.Pool}
			r.await(t, "they are there", func() bool { return len(r.names()) == 10 })
			if err := stream.Drop(t.Context(), db.Pool, "who"); err != nil {
				t.Fatal(err)
			}
			if partitions > 0 { // the server may have been faster
				if _, err := stream.Ensure(t.Context(), db.Pool, "who", stream.Options{Partitions: partitions}); err != nil {
					t.Skip(err)
				}
			}
			testkit.Eventually(t, "the stream is made again", func() bool {
				_, err := stream.Lookup(t.Context(), db.Pool, "who")
				return err == nil
			})
			again := reader{pool: db.Pool}
			again.await(t, "they are there again", func() bool { return len(again.names()) == 10 })
		})
	}
}
