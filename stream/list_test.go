package stream_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/stream"
)

// interrupting is the tracer of a pool: it calls a function before the first
// statement that contains a text.
type interrupting struct {
	text string
	do   func()
}

func (i interrupting) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if strings.Contains(data.SQL, i.text) {
		i.do()
	}
	return ctx
}

func (interrupting) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// TestList_DroppedMeanwhile drops one of the streams that List has found, before
// List reads their partitions: List returns the others.
func TestList_DroppedMeanwhile(t *testing.T) {
	t.Parallel()
	db, _ := ensureParted(t, 2)
	for _, name := range []string{"after", "zero"} {
		if _, err := stream.Ensure(t.Context(), db.Pool, name, stream.Options{Partitions: 1}); err != nil {
			t.Fatal(err)
		}
	}
	cfg, err := pgxpool.ParseConfig(db.URL)
	if err != nil {
		t.Fatal(err)
	}
	cfg.ConnConfig.Tracer = interrupting{"WHERE parent = $1", sync.OnceFunc(func() {
		if err := stream.Drop(t.Context(), db.Pool, "parted"); err != nil {
			t.Error(err)
		}
	})}
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	all, err := stream.LookupEvery(t.Context(), pool)
	if err != nil || len(all) != 2 || all[0].Name() != "after" || all[1].Name() != "zero" {
		t.Errorf("%d streams, %v, want after and zero", len(all), err)
	}
}
