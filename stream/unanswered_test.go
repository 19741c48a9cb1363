package stream_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/stream"
)

// cutNext withholds the answer to the next write, and breaks the connection.
func (p *cutPlan) cutNext() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.after[p.writes+1] = true
}

// forbidTables makes PostgreSQL reject the creation of tables, also temporary ones,
// with an error like that of a trigger for a row.
func forbidTables(t *testing.T, db pgtest.DB) {
	exec(t, db.Pool, `CREATE FUNCTION no_tables() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no tables here'; END $$`)
	exec(t, db.Pool, `CREATE EVENT TRIGGER no_tables ON ddl_command_start WHEN TAG IN ('CREATE TABLE') EXECUTE FUNCTION no_tables()`)
}

// cutWith withholds the answer to the next write that has this text, and breaks the connection. The session may write something else before.
func (p *cutPlan) cutWith(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.with = []byte(text)
}

// redialPool returns a pool with one connection, which the plan cuts. It calls again before each new connection after
// a cut: there is no spare one that could be used in its place.
func redialPool(t *testing.T, cfg *pgxpool.Config, plan *cutPlan, again func(ctx context.Context)) *pgxpool.Pool {
	t.Helper()
	dial := cfg.ConnConfig.DialFunc
	cfg.MaxConns = 1
	cfg.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if plan.kept.Load() {
			again(ctx)
		}
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &cuttable{Conn: conn, plan: plan}, nil
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// TestAppender_DroppedAfterALostAnswer: the answer to a COMMIT is lost, and the stream is dropped before
// the batch is written again. The error says that the batch may have been stored.
func TestAppender_DroppedAfterALostAnswer(t *testing.T) {
	t.Parallel()
	ensureBoth(t, func(t *testing.T, db pgtest.DB, s *stream.Stream) {
		cfg, err := pgxpool.ParseConfig(db.URL)
		if err != nil {
			t.Fatal(err)
		}
		plan := &cutPlan{before: map[int]bool{}, after: map[int]bool{}}
		var drop sync.Once
		pool := redialPool(t, cfg, plan, func(ctx context.Context) {
			drop.Do(func() {
				if err := stream.Drop(ctx, db.Pool, s.Name()); err != nil {
					t.Error(err)
				}
			})
		})
		a := run(t, pool, s, stream.AppenderConfig{})
		for _, payload := range []string{"first", "second"} { // the session prepares with the second
			mustAppend(t, a, stream.Message{Payload: []byte(payload)})
		}
		plan.cutWith("third")
		_, err = a.Append(t.Context(), stream.Message{Payload: []byte("third")})
		if !errors.Is(err, stream.ErrNotFound) || !errors.Is(err, stream.ErrOutcomeUnknown) {
			t.Errorf("stored and dropped: %v", err)
		}
		_, err = a.Append(t.Context(), stream.Message{Payload: []byte("fourth")})
		if !errors.Is(err, stream.ErrNotFound) || errors.Is(err, stream.ErrOutcomeUnknown) {
			t.Errorf("after the drop: %v", err)
		}
	})
}

// TestAppender_RefusedAfterALostAnswer: the answer to a COMMIT is lost, and PostgreSQL
// rejects the writer from then on. The message is stored, so the error must not say
// that it is not.
func TestAppender_RefusedAfterALostAnswer(t *testing.T) {
	t.Parallel()
	db, s := ensure(t)
	var role string
	if err := db.Pool.QueryRow(t.Context(), `SELECT current_database() || '_appender'`).Scan(&role); err != nil {
		t.Fatal(err)
	}
	exec(t, db.Pool, fmt.Sprintf(`CREATE ROLE %[1]s; GRANT USAGE ON SCHEMA tidewire TO %[1]s; GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA tidewire TO %[1]s;
		GRANT ALL ON ALL TABLES IN SCHEMA tidewire TO %[1]s; GRANT ALL ON ALL SEQUENCES IN SCHEMA tidewire TO %[1]s`, role))
	cfg, err := pgxpool.ParseConfig(db.URL)
	if err != nil {
		t.Fatal(err)
	}
	cfg.ConnConfig.RuntimeParams["role"] = role
	plan := &cutPlan{before: map[int]bool{}, after: map[int]bool{}}
	pool := redialPool(t, cfg, plan, func(ctx context.Context) {
		if _, err := db.Pool.Exec(ctx, `REVOKE USAGE ON SCHEMA tidewire FROM `+role); err != nil {
			t.Error(err)
		}
	})
	a, stop := start(t, pool, s, stream.AppenderConfig{})
	for _, payload := range []string{"first", "second"} { // the session prepares with the second
		if _, err := a.Append(t.Context(), stream.Message{Payload: []byte(payload)}); err != nil {
			t.Fatal(err)
		}
	}
	plan.cutWith("third")
	_, err = a.Append(t.Context(), stream.Message{Payload: []byte("third")})
	if !errors.Is(err, stream.ErrOutcomeUnknown) {
		t.Errorf("the answer was lost, and the caller is told %v", err)
	}
	wantStored(t, s, "first, second, third")
	_, err = a.Append(t.Context(), stream.Message{Payload: []byte("fourth")})
	if err == nil || errors.Is(err, stream.ErrOutcomeUnknown) {
		t.Errorf("refused at once: %v", err)
	}
	stop()
	pool.Close()
	exec(t, db.Pool, fmt.Sprintf(`DROP OWNED BY %[1]s; DROP ROLE %[1]s`, role))
}

// TestAppender_RepetitionIsNotStaged: the answer to a large batch of two callers is
// lost. Its repetition is rejected before it can find that the first attempt is
// committed.
func TestAppender_RepetitionIsNotStaged(t *testing.T) {
	t.Parallel()
	db, s := ensureOwn(t)
	forbidTables(t, db)
	plan := &cutPlan{before: map[int]bool{}, after: map[int]bool{}}
	a := run(t, cutPool(t, db, plan), s, stream.AppenderConfig{Linger: 200 * time.Millisecond})
	for _, payload := range []string{"first", "second"} { // the session prepares with the second
		if _, err := a.Append(t.Context(), stream.Message{Payload: []byte(payload)}); err != nil {
			t.Fatal(err)
		}
	}
	plan.cutNext()
	var answers sync.WaitGroup
	positions := make([]int64, 2)
	for i := range positions {
		answers.Add(1)
		err := a.Submit(t.Context(), []stream.Message{{Payload: bytes.Repeat([]byte{byte('a' + i)}, 40_000)}}, func(at stream.Appended, err error) {
			first := at.First
			defer answers.Done()
			if positions[i] = first; err != nil {
				t.Error(err)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	answers.Wait()
	var n, there int
	err := db.Pool.QueryRow(t.Context(), fmt.Sprintf(`SELECT count(*), count(*) FILTER (WHERE position = ANY($1)) FROM tidewire.stream_%d`, s.ID()), positions).Scan(&n, &there)
	if err != nil || n != 4 || there != 2 {
		t.Errorf("%d messages, %d of them where they were said to be, %v; want 4 and 2", n, there, err)
	}
}

// TestWriter_StagedIsRefused: a batch that cannot be staged is sent directly.
func TestWriter_StagedIsRefused(t *testing.T) {
	t.Parallel()
	db := setup(t)
	forbidTables(t, db)
	plan := &cutPlan{before: map[int]bool{}, after: map[int]bool{}}
	w := stream.NewWriter(cutPool(t, db, plan), stream.WriterConfig{})
	defer w.Close()
	large := bytes.Repeat([]byte("large"), 30_000)
	for n := range 4 {
		if n == 2 { // the session has prepared with the second
			plan.cutNext()
		}
		if err := w.Write(t.Context(), batchOf(large)); err != nil {
			t.Fatal(err)
		}
	}
	if rows := stored(t, db); len(rows) != 4 {
		t.Errorf("%d rows, want 4", len(rows))
	}
}

// TestAppender_SessionsEnd repeatedly terminates sessions that write: stored messages
// are acknowledged, and nothing is stored twice.
func TestAppender_SessionsEnd(t *testing.T) {
	t.Parallel()
	db, s := ensure(t)
	a := run(t, db.Pool, s, stream.AppenderConfig{})
	ctx, stop := context.WithCancel(t.Context())
	var ending sync.WaitGroup
	ending.Go(func() {
		for ctx.Err() == nil {
			_, err := db.Pool.Exec(context.Background(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
				WHERE datname = current_database() AND application_name = 'tidewire writer' AND pid <> pg_backend_pid()`)
			if err != nil {
				t.Error(err)
			}
			time.Sleep(20 * time.Millisecond)
		}
	})
	for n := range 60 {
		if _, err := a.Append(t.Context(), messages(fmt.Sprint(n))...); err != nil {
			t.Errorf("message %d: %v", n, err)
		}
	}
	stop()
	ending.Wait()
	all := everything(t, s)
	for n, m := range all {
		if string(m.Payload) != fmt.Sprint(n) {
			t.Fatalf("message %d is %s", n, m.Payload)
		}
	}
	if len(all) != 60 {
		t.Errorf("%d messages, want the 60 that were answered", len(all))
	}
}
