package stream_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/testkit"
	"github.com/tidewire/tidewire/stream"
)

// atOnce is the tracer of a pool: it counts the batches with that statement that
// are under way at the same time.
type atOnce struct {
	text             string
	now, most, began atomic.Int64
}

type tracedBatch struct{}

func (c *atOnce) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

func (c *atOnce) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (c *atOnce) TraceBatchStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	for _, q := range data.Batch.QueuedQueries {
		if strings.Contains(q.SQL, c.text) {
			c.began.Add(1)
			for now := c.now.Add(1); ; {
				if most := c.most.Load(); now <= most || c.most.CompareAndSwap(most, now) {
					break
				}
			}
			time.Sleep(10 * time.Millisecond) // for others to come
			return context.WithValue(ctx, tracedBatch{}, true)
		}
	}
	return ctx
}

func (c *atOnce) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

func (c *atOnce) TraceBatchEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchEndData) {
	if ctx.Value(tracedBatch{}) != nil {
		c.now.Add(-1)
	}
}

// TestPartitioned_RotatesInTurn: the records of all partitions are as old.
func TestPartitioned_RotatesInTurn(t *testing.T) {
	t.Parallel()
	const n = 8
	db, s := ensurePartedOwn(t, n)
	cfg, err := pgxpool.ParseConfig(db.URL)
	if err != nil {
		t.Fatal(err)
	}
	folds := &atOnce{text: "fold_requests"}
	cfg.ConnConfig.Tracer, cfg.MaxConns = folds, 2*n
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	a := runParted(t, pool, s, stream.PartitionedConfig{})
	for i := range n {
		mustAppendAs(t, a.Partition(i), stream.RequestID{Client: fmt.Sprint("p", i), Sequence: 1}, "x")
	}
	testkit.Eventually(t, "all folds", func() bool { return folds.began.Load() == n })
	if most := folds.most.Load(); most != 1 {
		t.Errorf("%d folds at once, want one", most)
	}
}
