package stream_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/internal/testkit"
	"github.com/tidewire/tidewire/migrate"
	"github.com/tidewire/tidewire/stream"
)

// traced is the tracer of a pool: it is called before each statement.
type traced func(sql string)

func (f traced) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	f(data.SQL)
	return ctx
}

func (traced) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (f traced) TraceBatchStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	for _, q := range data.Batch.QueuedQueries {
		f(q.SQL)
	}
	return ctx
}

func (traced) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

func (traced) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

// poolBefore opens a pool that calls do before each statement that contains a text.
func poolBefore(t *testing.T, url, text string, do func()) *pgxpool.Pool {
	t.Helper()
	return poolWith(t, url, func(cfg *pgxpool.Config) {
		cfg.ConnConfig.Tracer = traced(func(sql string) {
			if strings.Contains(sql, text) {
				do()
			}
		})
	})
}

// poolWith opens a pool on a database with a changed configuration.
func poolWith(t *testing.T, url string, change func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	change(cfg)
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// dialing changes the connections of a pool.
func dialing(wrap func(net.Conn) net.Conn) func(*pgxpool.Config) {
	return func(cfg *pgxpool.Config) {
		dial := cfg.ConnConfig.DialFunc
		cfg.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := dial(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return wrap(conn), nil
		}
	}
}

// newRole makes a role that may call all functions, and has the other grants, in which # is its name. It ends with the test.
func newRole(t *testing.T, db pgtest.DB, grants string) (role string) {
	t.Helper()
	role = value[string](t, db.Pool, `SELECT current_database() || '_role'`)
	exec(t, db.Pool, strings.ReplaceAll(`CREATE ROLE #; GRANT USAGE ON SCHEMA tidewire TO #; GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA tidewire TO #; `+grants, "#", role))
	t.Cleanup(func() {
		if _, err := db.Pool.Exec(context.Background(), strings.ReplaceAll(`DROP OWNED BY #; DROP ROLE #`, "#", role)); err != nil {
			t.Error(err)
		}
	})
	return role
}

// onTables are the grants of a role that writes.
const onTables = `GRANT ALL ON ALL TABLES IN SCHEMA tidewire TO #; GRANT ALL ON ALL SEQUENCES IN SCHEMA tidewire TO #`

// value returns the value that a query has for a result.
func value[T any](t *testing.T, on interface {
	QueryRow(context.Context, string, ...any) pgx.Row
}, sql string, args ...any) (v T) {
	t.Helper()
	if err := on.QueryRow(t.Context(), sql, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func mustCommit(t *testing.T, g *stream.Group, position int64) {
	t.Helper()
	_, err := g.Commit(t.Context(), position)
	must(t, err)
}

func rollBack(t *testing.T, tx pgx.Tx) {
	t.Helper()
	must(t, tx.Rollback(t.Context()))
}

func ensureWith(t *testing.T, pool *pgxpool.Pool, name string, opts stream.Options) *stream.Stream {
	t.Helper()
	s, err := stream.Ensure(t.Context(), pool, name, opts)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func lookUp(t *testing.T, pool *pgxpool.Pool, name string) *stream.Stream {
	t.Helper()
	s, err := stream.Lookup(t.Context(), pool, name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// awaitLockWaiters waits until so many sessions wait for a lock in the database of the test.
func awaitLockWaiters(t *testing.T, db pgtest.DB, n int) {
	t.Helper()
	testkit.Eventually(t, "sessions wait for locks", func() bool {
		return n <= value[int](t, db.Pool, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`)
	})
}

// counting counts the statements that contain a text, and those that do not.
type counting struct{ count, others atomic.Int64 }

func countingPool(t *testing.T, url, text string) (*pgxpool.Pool, *counting) {
	t.Helper()
	c := &counting{}
	return poolWith(t, url, func(cfg *pgxpool.Config) {
		cfg.ConnConfig.Tracer = traced(func(sql string) {
			if strings.Contains(sql, text) {
				c.count.Add(1)
			} else {
				c.others.Add(1)
			}
		})
	}), c
}

var migrated = pgtest.NewTemplate("stream", func(ctx context.Context, pool *pgxpool.Pool) error {
	_, err := migrate.Up(ctx, pool)
	if err == nil {
		_, err = migrate.Ingest(ctx, pool, "messages")
	}
	return err
})

// setup returns a migrated database.
func setup(t *testing.T) pgtest.DB {
	t.Helper()
	return migrated.Open(t)
}

// smallPool is a pool on db with conns connections.
func smallPool(t *testing.T, db pgtest.DB, conns int32) *pgxpool.Pool {
	t.Helper()
	pool := poolWith(t, db.URL, func(cfg *pgxpool.Config) {
		cfg.MaxConns = conns
	})
	return pool
}

// allMethods are bothMethods, and Auto, with which a stream stays shared.
var allMethods = map[string]stream.Method{"auto": stream.Auto, "array": stream.Array, "copy": stream.Copy}

func mustAppendAs(t *testing.T, a *stream.Appender, p stream.RequestID, payloads ...string) (first int64) {
	t.Helper()
	stored, err := a.AppendAs(t.Context(), p, messages(payloads...)...)
	if err != nil {
		t.Fatal(err)
	}
	return stored.First
}

// firstOf is the position of the first message.
func firstOf(at stream.Appended, err error) (int64, error) { return at.First, err }

func messages(payloads ...string) (all []stream.Message) {
	for _, p := range payloads {
		all = append(all, stream.Message{Payload: []byte(p)})
	}
	return all
}

// wantStored wants the payloads, in this order.
func wantStored(t *testing.T, s *stream.Stream, want string) {
	t.Helper()
	if got := strings.Join(payloads(t, everything(t, s), nil), ", "); got != want {
		t.Errorf("stored: %s\n  want: %s", got, want)
	}
}

// wantAt wants the message at the position.
func wantAt(t *testing.T, s *stream.Stream, position int64, want string) {
	t.Helper()
	for _, m := range everything(t, s) {
		if m.Position == position && string(m.Payload) == want {
			return
		}
	}
	t.Errorf("%q is not at %d", want, position)
}

// soon ends before the test would hang.
func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func begin(t *testing.T, pool *pgxpool.Pool, level pgx.TxIsoLevel) pgx.Tx {
	t.Helper()
	tx, err := pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: level})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tx.Rollback(context.Background()) })
	return tx
}

func publish(t *testing.T, tx pgx.Tx, s *stream.Stream, payloads ...string) {
	t.Helper()
	var msgs []stream.Message
	for _, p := range payloads {
		msgs = append(msgs, stream.Message{Payload: []byte(p)})
	}
	must(t, s.AppendTx(t.Context(), tx, msgs...))
}

func commitTx(t *testing.T, tx pgx.Tx) {
	t.Helper()
	must(t, tx.Commit(t.Context()))
}

func exec(t *testing.T, tx interface {
	Exec(context.Context, string, ...any) (pgconn.CommandTag, error)
}, sql string, args ...any) {
	t.Helper()
	if _, err := tx.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

var levels = []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable}

func dbName(t *testing.T, db pgtest.DB) (name string) {
	t.Helper()
	must(t, db.Pool.QueryRow(t.Context(), `SELECT current_database()`).Scan(&name))
	return name
}

// ensure returns a keyed stream on a migrated database.
func ensure(t *testing.T) (pgtest.DB, *stream.Stream) {
	t.Helper()
	db := setup(t)
	s, err := stream.Ensure(t.Context(), db.Pool, "orders", stream.Options{Keyed: true})
	if err != nil {
		t.Fatal(err)
	}
	return db, s
}

// ensureOwn is ensure for a stream with its own tables, for tests that inspect them.
func ensureOwn(t *testing.T) (pgtest.DB, *stream.Stream) {
	t.Helper()
	db := setup(t)
	s, err := stream.Ensure(t.Context(), db.Pool, "orders", stream.Options{Keyed: true, OwnTables: true})
	if err != nil {
		t.Fatal(err)
	}
	return db, s
}

// pools opens n more pools on db, as other nodes would.
func pools(t *testing.T, url string, n int) []*pgxpool.Pool {
	t.Helper()
	all := make([]*pgxpool.Pool, n)
	for i := range all {
		var err error
		if all[i], err = pgxpool.New(t.Context(), url); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(all[i].Close)
	}
	return all
}

// moveStream moves a stream to its own tables, like another process.
func moveStream(t *testing.T, pool *pgxpool.Pool, s *stream.Stream) {
	t.Helper()
	exec(t, pool, `SELECT tidewire.own_stream($1)`, s.ID())
}

// isShared reports whether the messages of a stream are in the shared table, and wants
// all of them in one place.
func isShared(t *testing.T, db pgtest.DB, s *stream.Stream) (shared bool) {
	t.Helper()
	var tables bool
	var messages int
	err := db.Pool.QueryRow(t.Context(), `SELECT shared, to_regclass('tidewire.stream_' || id) IS NOT NULL,
		(SELECT count(*) FROM tidewire.shared_message WHERE stream = id) FROM tidewire.stream WHERE id = $1`, s.ID()).Scan(&shared, &tables, &messages)
	if err != nil {
		t.Fatal(err)
	}
	if shared == tables || !shared && messages > 0 {
		t.Errorf("shared is %t, the stream has tables: %t, and %d messages in the shared one", shared, tables, messages)
	}
	return shared
}

func ensureNamed(t *testing.T, pool *pgxpool.Pool, name string, own bool) *stream.Stream {
	t.Helper()
	s, err := stream.Ensure(t.Context(), pool, name, stream.Options{Keyed: true, OwnTables: own})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// ensureBoth runs a test with a stream that shares its table, and with one that has its own.
func ensureBoth(t *testing.T, test func(t *testing.T, db pgtest.DB, s *stream.Stream)) {
	for name, ensure := range map[string]func(*testing.T) (pgtest.DB, *stream.Stream){"shared": ensure, "own": ensureOwn} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, s := ensure(t)
			test(t, db, s)
		})
	}
}

// payloads returns the payloads of the messages.
func payloads(t *testing.T, msgs []stream.Message, err error) []string {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for i, m := range msgs {
		if i > 0 && m.Position <= msgs[i-1].Position {
			t.Errorf("position %d after %d", m.Position, msgs[i-1].Position)
		}
		all = append(all, string(m.Payload))
	}
	return all
}

func wantPayloads(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

// ensureOn migrates the database and returns a stream of that name.
func ensureOn(t *testing.T, pool *pgxpool.Pool, name string) *stream.Stream {
	t.Helper()
	if _, err := migrate.Up(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	s, err := stream.Ensure(t.Context(), pool, name, stream.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// forSeeds runs a fault test with each seed.
func forSeeds(t *testing.T, test func(t *testing.T, seed uint64)) {
	for seed := range pgtest.Seeds() {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			test(t, seed)
		})
	}
}

// notShort skips a test that takes seconds, with -short.
func notShort(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("takes seconds")
	}
}
