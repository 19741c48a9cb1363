package stream_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/ingestlog"
	"github.com/tidewire/tidewire/internal/pg"
	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/internal/testkit"
	"github.com/tidewire/tidewire/migrate"
	"github.com/tidewire/tidewire/stream"
)

type row struct {
	Position int64
	Payload  []byte
}

func stored(t *testing.T, db pgtest.DB) []row {
	t.Helper()
	rows, err := db.Pool.Query(t.Context(), `SELECT position, payload FROM messages ORDER BY position`)
	if err != nil {
		t.Fatal(err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[row])
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func batchOf(payloads ...[]byte) *stream.Batch {
	var b stream.Batch
	for _, p := range payloads {
		b.Append(p)
	}
	return &b
}

// TestWriter_EveryMethodStoresEveryPayload, also in two tables by one session, and after the table was made anew.
func TestWriter_EveryMethodStoresEveryPayload(t *testing.T) {
	t.Parallel()
	payloads := [][]byte{{}, []byte("text"), {0}, {0xff, 0x00, 0xfe}, bytes.Repeat([]byte{7}, 1<<20), []byte("last")}
	db := setup(t)
	if _, err := migrate.Ingest(t.Context(), db.Pool, "other"); err != nil {
		t.Fatal(err)
	}
	other := stream.NewTableWriter(db.Pool, "other", stream.WriterConfig{})
	defer other.Close()
	for name, method := range allMethods {
		w := stream.NewWriter(db.Pool, stream.WriterConfig{Method: method})
		defer w.Close()
		for round := range 2 {
			b := batchOf(payloads...)
			must(t, w.Write(t.Context(), b))
			if want := int64(round*len(payloads) + 1); b.First != want {
				t.Errorf("%s: batch %d begins at %d, want %d", name, round, b.First, want)
			}
			must(t, other.Write(t.Context(), batchOf([]byte("x"))))
		}
		rows := stored(t, db)
		for i, r := range rows {
			if r.Position != int64(i+1) || !bytes.Equal(r.Payload, payloads[i%len(payloads)]) {
				t.Errorf("%s: row %d: position %d, %d bytes, want payload %d", name, i, r.Position, len(r.Payload), i%len(payloads))
			}
		}
		if len(rows) != 2*len(payloads) {
			t.Errorf("%s: %d rows, want %d", name, len(rows), 2*len(payloads))
		}
		must(t, ingestlog.Recreate(t.Context(), db.Pool, ""))
	}
	if n := value[int](t, db.Pool, `SELECT count(*) FROM other`); n != 2*len(allMethods) {
		t.Errorf("%d rows in the other table, want %d", n, 2*len(allMethods))
	}
}

// freezer is a network on which a client sends a limited number of further bytes
// and then nothing, like a stopped process.
type freezer struct {
	left atomic.Int64
}

type freezingConn struct {
	net.Conn
	*freezer
	closed chan struct{}
	close  func()
}

func (c *freezingConn) Write(p []byte) (int, error) {
	if left := c.left.Add(-int64(len(p))); left < 0 {
		n, _ := c.Conn.Write(p[:max(0, int64(len(p))+left)])
		<-c.closed
		return n, net.ErrClosed
	}
	return c.Conn.Write(p)
}

// SetDeadline is called by pgx to cancel an operation.
func (c *freezingConn) SetDeadline(at time.Time) error {
	if !at.IsZero() && !at.After(time.Now()) {
		c.close()
	}
	return c.Conn.SetDeadline(at)
}

func (c *freezingConn) Close() error {
	c.close()
	return c.Conn.Close()
}

// pool opens a pool with its own application name.
func (f *freezer) pool(t *testing.T, url string) *pgxpool.Pool {
	t.Helper()
	f.left.Store(1 << 40)
	return poolWith(t, url, func(cfg *pgxpool.Config) {
		cfg.ConnConfig.RuntimeParams["application_name"] = "an application"
		dialing(func(conn net.Conn) net.Conn {
			closed := make(chan struct{})
			return &freezingConn{conn, f, closed, sync.OnceFunc(func() { close(closed) })}
		})(cfg)
	})
}

// waitLocked waits until a session holds the lock of the messages table.
func waitLocked(t *testing.T, db pgtest.DB) {
	t.Helper()
	testkit.Eventually(t, "a session holds the lock", func() bool {
		return value[bool](t, db.Pool, `SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND granted AND objid = 1
			AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))`)
	})
}

// TestWriter_FrozenInAnyPool: a writer that froze with the lock is terminated,
// although its pool is the application's, with any defaults of the database.
func TestWriter_FrozenInAnyPool(t *testing.T) {
	t.Parallel()
	for name, defaults := range map[string]map[string]string{
		"with defaults of PostgreSQL": nil,
		"with a short statement_timeout": {
			"statement_timeout": "250ms", "search_path": "public, pg_catalog", "standard_conforming_strings": "off",
			"default_transaction_isolation": "serializable", "idle_in_transaction_session_timeout": "300ms",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := setup(t)
			pgtest.SetDefaults(t, db, defaults)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			var f freezer
			frozen := stream.NewWriter(f.pool(t, db.URL), stream.WriterConfig{Method: stream.Copy, Timeout: time.Hour})
			must(t, frozen.Write(ctx, batchOf([]byte("before"))))
			f.left.Store(64 << 10)
			failed := make(chan error, 1)
			freezing, stop := context.WithCancel(ctx)
			go func() { failed <- frozen.Write(freezing, batchOf(bytes.Repeat([]byte("x"), 1<<20))) }()
			waitLocked(t, db)

			w := stream.NewWriter(db.Pool, stream.WriterConfig{LockTimeout: 500 * time.Millisecond})
			defer w.Close()
			if err := w.Write(ctx, batchOf([]byte("after"))); err != nil {
				t.Errorf("the lock was not freed: %v", err)
			}
			stop()
			<-failed
			frozen.Close()
			if rows := stored(t, db); len(rows) != 2 {
				t.Errorf("%d rows, want 2", len(rows))
			}
		})
	}
}

// TestWriter_LeavesNoSettings: after a writer, the pool's only connection has the
// settings with which the pool opened it.
func TestWriter_LeavesNoSettings(t *testing.T) {
	t.Parallel()
	db := setup(t)
	defaults := map[string]string{"statement_timeout": "12s", "lock_timeout": "11s", "search_path": "public, pg_catalog", "application_name": "an application"}
	pgtest.SetDefaults(t, db, defaults)
	cfg := db.Pool.Config()
	cfg.MaxConns = 1
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	wantDefaults := func(after string) {
		t.Helper()
		for name, want := range defaults {
			var got string
			if err := pool.QueryRow(t.Context(), `SELECT current_setting($1)`, name).Scan(&got); err != nil || got != want {
				t.Errorf("after %s %s is %q (%v), want %q", after, name, got, err, want)
			}
		}
	}
	s := ensureWith(t, pool, "s", stream.Options{})
	wantDefaults("Ensure")
	w := stream.NewWriter(pool, stream.WriterConfig{})
	must(t, w.Write(t.Context(), batchOf([]byte("x"))))
	w.Close()
	wantDefaults("a Writer")
	i := ingestlog.NewInserter(pool, ingestlog.InserterConfig{})
	must(t, i.Insert(t.Context(), [][]byte{[]byte("y")}))
	i.Close()
	wantDefaults("an Inserter")
	must(t, s.SetRetention(t.Context(), stream.Retention{MaxAge: time.Hour}))
	wantDefaults("Alter")
}

// TestAppender_ClientEncoding: text is written and read in the encoding of the pool, for any encoding and method, also if a server refuses
// \' in strings: stored text is found again.
func TestAppender_ClientEncoding(t *testing.T) {
	t.Parallel()
	db := setup(t)
	pgtest.SetDefaults(t, db, map[string]string{"client_encoding": "LATIN1", "standard_conforming_strings": "off", "backslash_quote": "off"})
	s := ensureWith(t, db.Pool, "größen", stream.Options{Keyed: true})
	request := stream.RequestID{Client: `prüfer\n'鍵`, Sequence: 1}
	const key = "schlüssel 鍵"
	for _, method := range []stream.Method{stream.Copy, stream.Array, stream.Copy} {
		a := run(t, db.Pool, s, stream.AppenderConfig{Writer: stream.WriterConfig{Method: method}})
		if at, err := a.AppendAs(t.Context(), request, stream.Message{Key: key, Payload: []byte("x")}); err != nil || at.First != 1 {
			t.Errorf("the request is at %d, %v, want 1", at.First, err)
		}
	}
	found, err := s.ReadKey(t.Context(), key, 0, 100, 10)
	if err != nil || len(found) != 1 || found[0].Key != key {
		t.Errorf("ReadKey: %v, %v, want one message", found, err)
	}
}

// TestAppender_LockOfAStranger: every role that may connect can take the lock of a stream, and keep it. Callers learn that nothing was
// stored, the log names the session, and the stream goes on when the lock is free.
func TestAppender_LockOfAStranger(t *testing.T) {
	t.Parallel()
	db, s := ensure(t)
	var text bytes.Buffer
	a := run(t, db.Pool, s, stream.AppenderConfig{Writer: stream.WriterConfig{LockTimeout: 100 * time.Millisecond, Log: slog.New(slog.NewTextHandler(&text, nil))}})
	stranger, err := pgx.Connect(t.Context(), db.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Close(context.Background())
	exec(t, stranger, `SELECT pg_advisory_lock(1953064037, $1)`, s.ID())
	_, err = a.Append(t.Context(), messages("refused")...)
	if held, ok := errors.AsType[*pg.HeldError](err); !ok || held.PID != int(stranger.PgConn().PID()) || errors.Is(err, stream.ErrOutcomeUnknown) {
		t.Errorf("%v, want that session %d holds the lock", err, stranger.PgConn().PID())
	}
	if want := fmt.Sprintf("pg_terminate_backend(%d)", stranger.PgConn().PID()); !strings.Contains(text.String(), want) {
		t.Errorf("the log lacks %s: %s", want, text.String())
	}
	exec(t, stranger, `SELECT pg_advisory_unlock_all()`)
	mustAppend(t, a, messages("stored")...)
	wantPayloads(t, "stored", payloads(t, everything(t, s), nil), "stored")
}

// TestAppender_LockInTurn: other transactions hold the lock one after the other, each for
// longer than a first attempt waits. The Appender gets the lock in its turn.
func TestAppender_LockInTurn(t *testing.T) {
	t.Parallel()
	db, s := ensure(t)
	a := run(t, smallPool(t, db, 8), s, stream.AppenderConfig{Writer: stream.WriterConfig{LockTimeout: time.Minute}})
	mustAppend(t, a, messages("first")...)
	ctx, stop := context.WithCancel(t.Context())
	var others sync.WaitGroup
	defer others.Wait()
	defer stop()
	for range 3 {
		others.Go(func() {
			for ctx.Err() == nil {
				_, err := db.Pool.Exec(context.Background(), fmt.Sprintf(
					`DO $$ BEGIN PERFORM pg_advisory_xact_lock(1953064037, %d); PERFORM pg_sleep(0.1); END $$`, s.ID()))
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	awaitLockWaiters(t, db, 2)
	mustAppend(t, a, messages("second")...)
}
