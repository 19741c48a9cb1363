package schedule

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/pg"
	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/migrate"
	"github.com/tidewire/tidewire/queue"
	"github.com/tidewire/tidewire/stream"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

var migrated = pgtest.NewTemplate("schedule", func(ctx context.Context, pool *pgxpool.Pool) error {
	if _, err := migrate.Up(ctx, pool); err != nil {
		return err
	}
	if _, err := stream.Ensure(ctx, pool, "ticks", stream.Options{}); err != nil {
		return err
	}
	if _, err := stream.Ensure(ctx, pool, "parts", stream.Options{Partitions: 3}); err != nil {
		return err
	}
	if _, err := queue.Ensure(ctx, pool, "urgent", queue.Options{Priorities: 3}); err != nil {
		return err
	}
	_, err := queue.Ensure(ctx, pool, "jobs", queue.Options{})
	return err
})

func newPool(t testing.TB, url string) *pgxpool.Pool {
	t.Helper()
	pool, err := pg.Open(t.Context(), pg.PoolConfig{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

func newRunner(pool *pgxpool.Pool) *Runner {
	return NewRunner(pool, RunnerConfig{Poll: 50 * time.Millisecond, Log: slog.New(slog.DiscardHandler)})
}

// start runs a Runner until the test or the returned function ends it.
func start(t testing.TB, r *Runner) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { r.Run(ctx) })
	stop = func() { cancel(); running.Wait() }
	t.Cleanup(stop)
	return stop
}

func exec(t testing.TB, pool *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func put(t testing.TB, pool *pgxpool.Pool, spec Spec) Schedule {
	t.Helper()
	s, err := Put(t.Context(), pool, spec)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// read returns all messages of a stream.
func read(t testing.TB, pool *pgxpool.Pool, name string) (all []stream.Message) {
	t.Helper()
	s, err := stream.Lookup(t.Context(), pool, name)
	if err != nil {
		t.Fatal(err)
	}
	for after := int64(0); ; {
		page, err := s.Read(t.Context(), after, 1000)
		if err != nil {
			t.Fatal(err)
		}
		if len(page) == 0 {
			return all
		}
		all = append(all, page...)
		after = page[len(page)-1].Position
	}
}

// stamp returns the name of the schedule and the due time of a message.
func stamp(t testing.TB, m stream.Message) (name string, due time.Time) {
	t.Helper()
	var in struct {
		Name string    `json:"tidewire_schedule"`
		Due  time.Time `json:"tidewire_schedule_due"`
	}
	if err := json.Unmarshal(m.Headers, &in); err != nil {
		t.Fatal(err)
	}
	return in.Name, in.Due
}

// missed sets the due time of a schedule, as if no server had run since.
func missed(t testing.TB, pool *pgxpool.Pool, name string, due time.Time) {
	t.Helper()
	exec(t, pool, `UPDATE tidewire.schedules SET since = $2::timestamptz - interval '1 day', due_at = $2, look_at = $2 WHERE name = $1`, name, due)
}

func now(t testing.TB, pool *pgxpool.Pool) (at time.Time) {
	t.Helper()
	if err := pool.QueryRow(t.Context(), nowSQL).Scan(&at); err != nil {
		t.Fatal(err)
	}
	return at
}
