package stream_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// counting is the tracer of a pool: it counts the statements that contain a text, and
// those that do not.
type counting struct {
	text          string
	count, others atomic.Int64
}

func (c *counting) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if strings.Contains(data.SQL, c.text) {
		c.count.Add(1)
	} else {
		c.others.Add(1)
	}
	return ctx
}

func (c *counting) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (c *counting) TraceBatchStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	for _, q := range data.Batch.QueuedQueries {
		c.TraceQueryStart(ctx, nil, pgx.TraceQueryStartData{SQL: q.SQL})
	}
	return ctx
}

func (c *counting) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

func (c *counting) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

func countingPool(t *testing.T, url, text string) (*pgxpool.Pool, *counting) {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	c := &counting{text: text}
	cfg.ConnConfig.Tracer = c
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool, c
}
