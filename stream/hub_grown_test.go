package stream_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/stream"
)

// gate is a tracer that, when armed, stops the next statement that contains a text just
// before it is sent.
type gate struct {
	text          string
	armed         atomic.Bool
	reached, pass chan struct{}
}

func (g *gate) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if strings.Contains(data.SQL, g.text) && g.armed.CompareAndSwap(true, false) {
		close(g.reached)
		<-g.pass
	}
	return ctx
}

func (g *gate) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func gatePool(t *testing.T, url, text string) (*pgxpool.Pool, *gate) {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	g := &gate{text: text, reached: make(chan struct{}), pass: make(chan struct{})}
	cfg.ConnConfig.Tracer = g
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool, g
}

// TestHub_GrownBesideARead: a lagging subscription is the leader and reads, while
// this process commits at the end, and another process after it. Polls show which
// subscription was at the end.
func TestHub_GrownBesideARead(t *testing.T) {
	t.Parallel()
	db, s := ensure(t)
	pool, g := gatePool(t, db.URL, "AS candidate")
	h, _ := runHub(t, pool, stream.HubConfig{Poll: 50 * time.Millisecond, NoListen: true})
	a := run(t, db.Pool, s, stream.AppenderConfig{Hub: h})
	atEnd := subscribe(t, h, s, stream.After(0))
	for n := range int64(10) {
		mustAppend(t, a, messages("old")...)
		for atEnd.Position() <= n {
			next(t, atEnd)
		}
	}
	lags := subscribe(t, h, s, stream.After(10))
	g.armed.Store(true)
	lagged := make(chan []stream.Message, 1)
	h.Notify(s) // makes a subscription read
	go func() { lagged <- next(t, lags) }()
	<-g.reached
	mustAppend(t, a, messages("eleven")...) // from memory
	tx := begin(t, db.Pool, pgx.ReadCommitted)
	publish(t, tx, s, "twelve")
	commitTx(t, tx)
	close(g.pass)
	<-lagged
	for atEnd.Position() < 12 {
		next(t, atEnd)
	}
}

// TestHub_WatchKeepsNothing: messages of a stream that is only watched are not kept in
// memory: a later subscription reads them from PostgreSQL.
func TestHub_WatchKeepsNothing(t *testing.T) {
	t.Parallel()
	db, s := ensure(t)
	pool, reads := countingPool(t, db.URL, "AS candidate")
	h, _ := runHub(t, pool, stream.HubConfig{Poll: never, NoListen: true})
	_, stop := h.Watch(s)
	defer stop()
	a := run(t, db.Pool, s, stream.AppenderConfig{Hub: h})
	for range 5 {
		mustAppend(t, a, messages("x")...)
	}
	if page := next(t, subscribe(t, h, s, stream.After(0))); len(page) != 5 || reads.count.Load() == 0 {
		t.Errorf("%d messages, %d reads; want 5, and at least one", len(page), reads.count.Load())
	}
}
