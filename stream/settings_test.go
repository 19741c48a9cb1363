package stream_test

import (
	"bytes"
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/ingestlog"
	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/stream"
)

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
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	cfg.ConnConfig.RuntimeParams["application_name"] = "an application"
	dial := cfg.ConnConfig.DialFunc
	cfg.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		closed := make(chan struct{})
		return &freezingConn{conn, f, closed, sync.OnceFunc(func() { close(closed) })}, err
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// waitLocked waits until a session holds the lock of the messages table.
func waitLocked(t *testing.T, db pgtest.DB) {
	t.Helper()
	for held := false; !held; {
		err := db.Pool.QueryRow(t.Context(), `
			SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND granted AND objid = 1
				AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))`).Scan(&held)
		if err != nil {
			t.Fatal(err)
		}
	}
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
			if err := frozen.Write(ctx, batchOf([]byte("before"))); err != nil {
				t.Fatal(err)
			}
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
	if err := w.Write(t.Context(), batchOf([]byte("x"))); err != nil {
		t.Fatal(err)
	}
	w.Close()
	wantDefaults("a Writer")
	i := ingestlog.NewInserter(pool, ingestlog.InserterConfig{})
	if err := i.Insert(t.Context(), [][]byte{[]byte("y")}); err != nil {
		t.Fatal(err)
	}
	i.Close()
	wantDefaults("an Inserter")
	if err := s.SetRetention(t.Context(), stream.Retention{MaxAge: time.Hour}); err != nil {
		t.Fatal(err)
	}
	wantDefaults("Alter")
}

// TestAppender_ClientEncoding: text is written and read in the encoding of the
// pool, for any encoding and method: stored text is found again.
func TestAppender_ClientEncoding(t *testing.T) {
	t.Parallel()
	db := setup(t)
	pgtest.SetDefaults(t, db, map[string]string{"client_encoding": "LATIN1", "standard_conforming_strings": "off"})
	s := ensureWith(t, db.Pool, "größen", stream.Options{Keyed: true})
	request := stream.RequestID{Client: `prüfer\n'鍵`, Sequence: 1}
	const key = "schlüssel 鍵"
	var first stream.Appended
	for n, method := range []stream.Method{stream.Copy, stream.Array, stream.Copy} {
		a := run(t, db.Pool, s, stream.AppenderConfig{Writer: stream.WriterConfig{Method: method}})
		got, err := a.AppendAs(t.Context(), request, stream.Message{Key: key, Payload: []byte("x")})
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			first = got
		}
		if got.First != first.First {
			t.Errorf("the request is stored at %d, and again at %d", first.First, got.First)
		}
	}
	found, err := s.ReadKey(t.Context(), key, 0, 100, 10)
	if err != nil || len(found) != 1 || found[0].Key != key {
		t.Errorf("ReadKey: %v, %v, want one message", found, err)
	}
}
