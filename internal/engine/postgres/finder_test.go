package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/testkit"
	"github.com/tidewire/tidewire/queue"
	"github.com/tidewire/tidewire/stream"
)

// heldTracer holds the first look-up of streams until it is released, and counts them.
type heldTracer struct {
	release chan struct{}
	count   atomic.Int64
}

func (h *heldTracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if strings.Contains(data.SQL, "name = ANY") && strings.Contains(data.SQL, "tidewire.stream WHERE") && h.count.Add(1) == 1 {
		<-h.release
	}
	return ctx
}

func (h *heldTracer) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// TestFinder_Shares: names requested during a look-up are looked up together after
// it, and each name gets its own answer.
func TestFinder_Shares(t *testing.T) {
	t.Parallel()
	db := migrated.Open(t)
	for i := range 40 {
		if _, err := stream.Ensure(t.Context(), db.Pool, fmt.Sprint("s", i), stream.Options{Partitions: i / 30 * 2}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := queue.Ensure(t.Context(), db.Pool, "jobs", queue.Options{}); err != nil {
		t.Fatal(err)
	}
	cfg, err := pgxpool.ParseConfig(db.URL)
	if err != nil {
		t.Fatal(err)
	}
	tracer := &heldTracer{release: make(chan struct{})}
	cfg.ConnConfig.Tracer = tracer
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	f := &finder{pool: pool}
	var finding sync.WaitGroup
	find := func(name string, want error) {
		finding.Go(func() {
			s, err := f.find(t.Context(), name)
			if !errors.Is(err, want) || want == nil && (s.Name() != name || s.Partitions() > 0 != (name >= "s30" && len(name) == 3)) {
				t.Errorf("%s: %v, %v; want %v", name, s, err, want)
			}
		})
	}
	find("s0", nil)
	testkit.Eventually(t, "the first look-up has begun", func() bool { return tracer.count.Load() > 0 })
	for i := range 400 {
		find(fmt.Sprint("s", i%40), nil)
		find(fmt.Sprint("none", i), stream.ErrNotFound)
		find("jobs", engine.ErrQueueStream)
	}
	find("", stream.ErrInvalid)
	given, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := f.find(given, "s1"); !errors.Is(err, context.Canceled) {
		t.Errorf("given up: %v", err)
	}
	testkit.Eventually(t, "all others wait", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return len(f.wanted) >= 1201
	})
	close(tracer.release)
	finding.Wait()
	if n := tracer.count.Load(); n != 3 { // the first, a thousand, and the others
		t.Errorf("%d look-ups, want 3", n)
	}
}
