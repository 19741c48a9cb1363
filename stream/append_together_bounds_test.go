package stream_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
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

// TestAppenders_AbandonedBesideTheLast: all calls of a round are abandoned while it waits
// for a session; the session is returned.
func TestAppenders_AbandonedBesideTheLast(t *testing.T) {
	t.Parallel()
	db := setup(t)
	pool := smallPool(t, db, 2)
	_, appenders := several(t, db, pool, 1)
	for n := range 5 {
		s := ensureOn(t, db.Pool, fmt.Sprint("given up ", n))
		abandoned, stop := start(t, pool, s, stream.AppenderConfig{})
		mustAppend(t, abandoned, messages("before")...)
		giveBack := occupySessions(t, pool)
		all := submitAll(t, []*stream.Appender{appenders[0], abandoned}, "one")
		abandoned.Abandon()
		stop()
		giveBack()
		all.Wait()
		mustAppend(t, appenders[0], messages("after")...)
	}
}

// TestAppenders_AbandonedBesideAFullRound: other Appenders have filled the open round, and
// nothing is written. Submit and Stop of an abandoned Appender still return.
func TestAppenders_AbandonedBesideAFullRound(t *testing.T) {
	t.Parallel()
	db := setup(t)
	pool := smallPool(t, db, 8)
	_, appenders := several(t, db, pool, 45)
	a, stop := start(t, pool, ensureOn(t, db.Pool, "own"), stream.AppenderConfig{})
	submitAll(t, append(appenders, a), "warm").Wait()
	giveBack := occupySessions(t, pool)
	big := stream.Message{Payload: bytes.Repeat([]byte("x"), 250_000)}
	var others, mine sync.WaitGroup
	for _, b := range appenders {
		others.Go(func() {
			if _, err := b.Append(context.Background(), big); err != nil {
				t.Error(err)
			}
		})
	}
	for range 200 { // the later ones wait for room
		mine.Go(func() {
			_, err := a.Append(context.Background(), messages("mine")...)
			if !errors.Is(err, stream.ErrOutcomeUnknown) && !errors.Is(err, stream.ErrClosed) {
				t.Errorf("abandoned: %v", err)
			}
		})
	}
	time.Sleep(50 * time.Millisecond)
	a.Abandon()
	stop()
	mine.Wait()
	giveBack()
	others.Wait()
}

// TestAppenders_RoundIsRefusedAtOnce: PostgreSQL rejects the round's statement when it is
// prepared. Every caller gets the error, as if each had written alone.
func TestAppenders_RoundIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	db := setup(t)
	var role string
	if err := db.Pool.QueryRow(t.Context(), `SELECT current_database() || '_together'`).Scan(&role); err != nil {
		t.Fatal(err)
	}
	exec(t, db.Pool, fmt.Sprintf(`CREATE ROLE %[1]s; GRANT USAGE ON SCHEMA tidewire TO %[1]s; GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA tidewire TO %[1]s`, role))
	cfg, err := pgxpool.ParseConfig(db.URL)
	if err != nil {
		t.Fatal(err)
	}
	cfg.ConnConfig.RuntimeParams["role"] = role
	cfg.MaxConns = 8
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		pool.Close()
		db.Pool.Exec(context.Background(), fmt.Sprintf(`DROP OWNED BY %[1]s; DROP ROLE %[1]s`, role))
	})
	_, appenders := several(t, db, pool, 5)
	exec(t, db.Pool, `REVOKE USAGE ON SCHEMA tidewire FROM `+role)
	giveBack := occupySessions(t, pool)
	all := submitAll(t, appenders, "x")
	giveBack()
	all.Wait()
	for i, err := range all.errs {
		if err == nil {
			t.Errorf("appender %d has stored something", i)
		}
	}
}

// TestAppenders_SlowCallback: a callback is slow, while more entries are handed back to
// its Appender. The Appender holds no session meanwhile: other streams continue, on a
// pool that lends one session.
func TestAppenders_SlowCallback(t *testing.T) {
	t.Parallel()
	db := setup(t)
	pool := smallPool(t, db, 2)
	streams, appenders := several(t, db, pool, 3)
	release := make(chan struct{})
	var done sync.WaitGroup
	submit := func(msgs []stream.Message, call func()) {
		done.Add(1)
		err := appenders[0].Submit(t.Context(), msgs, func(_ stream.Appended, err error) {
			defer done.Done()
			if err != nil {
				t.Error(err)
			}
			call()
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	entered := make(chan struct{})
	submit(messages("1"), func() { close(entered); <-release })
	<-entered
	for n := range 20 {
		others := submitAll(t, appenders[1:], "other")
		if n < 5 {
			submit(messages("2"), func() {})
		}
		if n == 3 {
			submit(make([]stream.Message, 300), func() {})
		}
		others.Wait()
		for _, err := range others.errs {
			if err != nil {
				t.Error(err)
			}
		}
	}
	close(release)
	done.Wait()
	if n := len(everything(t, streams[0])); n != 306 {
		t.Errorf("%d messages, want 306", n)
	}
}

// TestAppenders_SlowTable: inserts into one stream block until the other streams are
// stored.
func TestAppenders_SlowTable(t *testing.T) {
	t.Parallel()
	db := setup(t)
	streams, appenders := several(t, db, smallPool(t, db, 8), 6)
	exec(t, db.Pool, `CREATE TABLE public.latch (open boolean)`)
	exec(t, db.Pool, `CREATE FUNCTION public.hold() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		WHILE NOT EXISTS (SELECT FROM public.latch) LOOP PERFORM pg_sleep(0.01); END LOOP; RETURN NEW; END $$`)
	exec(t, db.Pool, fmt.Sprintf(`CREATE TRIGGER hold BEFORE INSERT ON tidewire.stream_%d FOR EACH ROW EXECUTE FUNCTION public.hold()`, streams[1].ID()))
	all := submitAll(t, appenders, "first")
	others := append(append([]*stream.Appender{}, appenders[0]), appenders[2:]...)
	for range 3 {
		more := submitAll(t, others, "more")
		more.Wait()
		for i, err := range more.errs {
			if err != nil {
				t.Errorf("%d of the others: %v", i, err)
			}
		}
	}
	exec(t, db.Pool, `INSERT INTO public.latch VALUES (true)`)
	all.Wait()
	for i, s := range streams {
		if all.errs[i] != nil {
			t.Errorf("stream %d: %v", i, all.errs[i])
		}
		if want := "first, more, more, more"; i == 1 {
			wantStored(t, s, "first")
		} else {
			wantStored(t, s, want)
		}
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
