package pg_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/pg"
	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/internal/testkit"
)

func TestOpen_NamesWhatIsWrong(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	free := l.Addr().String()
	l.Close()
	for url, want := range map[string]error{
		"postgres://%zz":                          pg.ErrURL,
		"postgres://nobody@" + free + "/nothing":  pg.ErrUnreachable,
		"host=/nonexistent-directory dbname=none": pg.ErrUnreachable,
	} {
		pool, err := pg.Open(t.Context(), pg.PoolConfig{URL: url})
		if !errors.Is(err, want) {
			t.Errorf("Open(%q): %v, want %v", url, err, want)
		}
		if pool != nil {
			t.Errorf("Open(%q) returned a pool beside its error", url)
		}
	}
}

func TestRetryable(t *testing.T) {
	t.Parallel()
	wrap := func(err error) error { return fmt.Errorf("outer: %w", err) }
	for _, c := range []struct {
		err  error
		want bool
	}{
		{nil, false},
		{context.Canceled, false},
		{errors.New("anything"), false},
		{wrap(io.ErrUnexpectedEOF), true},
		{wrap(net.ErrClosed), true},
		{wrap(&pgconn.PgError{Code: "57P01"}), true},
		{wrap(&pgconn.PgError{Code: "53100"}), true},
		{wrap(&pgconn.PgError{Code: "40P01"}), true},
		{wrap(&pgconn.PgError{Code: "55P03"}), true},
		{wrap(&pgconn.PgError{Code: "42P01"}), false},
		{wrap(&pgconn.PgError{Code: "23505"}), false},
		{wrap(&pgconn.PgError{Code: "22001"}), false},
		{wrap(&pgconn.PgError{Code: "XX000", Message: "cache lookup failed for function 30289"}), true},
		{wrap(&pgconn.PgError{Code: "XX000", Message: "could not open relation with OID 30289"}), true},
		{wrap(&pgconn.PgError{Code: "XX000", Message: "tuple concurrently updated"}), false},
	} {
		if got := pg.Retryable(c.err); got != c.want {
			t.Errorf("Retryable(%v) = %v", c.err, got)
		}
	}
}

// TestOpen_FunctionsOfStrangers: a function in public that fits a call better than PostgreSQL's own does not run.
func TestOpen_FunctionsOfStrangers(t *testing.T) {
	t.Parallel()
	db := pgtest.Open(t)
	const trap = `CREATE FUNCTION public.format(text, text) RETURNS text LANGUAGE sql AS $$ SELECT 'trapped' $$`
	if _, err := db.Pool.Exec(t.Context(), trap); err != nil {
		t.Fatal(err)
	}
	pool, err := pg.Open(t.Context(), pg.PoolConfig{URL: db.URL})
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	var name string
	if err := pool.QueryRow(t.Context(), `SHOW application_name`).Scan(&name); err != nil || name != pg.AppName {
		t.Errorf("application_name is %q (%v), want %q", name, err, pg.AppName)
	}
	for want, pool := range map[string]*pgxpool.Pool{"trapped": db.Pool, "x": pool} {
		var got string
		if err := pool.QueryRow(t.Context(), `SELECT format('%I', 'x'::text)`).Scan(&got); err != nil || got != want {
			t.Errorf("format returns %q (%v), want %q", got, err, want)
		}
	}
}

// TestFreeLock: a writer's session that waits for its client is ended, and any other holder is named.
func TestFreeLock(t *testing.T) {
	t.Parallel()
	db := pgtest.Open(t)
	for _, c := range []struct {
		name  string
		ended bool
	}{
		{pg.WriterName, true},
		{pg.AppName, false}, // a transaction of the caller, in a pool that Open made
		{"somebody else", false},
	} {
		holder, err := pgconn.Connect(t.Context(), db.URL)
		if err != nil {
			t.Fatal(err)
		}
		defer holder.Close(context.Background())
		hold := fmt.Sprintf(`SET application_name = '%s'; BEGIN; SELECT pg_advisory_xact_lock(%d, 7)`, c.name, pg.LockClass)
		if _, err := holder.Exec(t.Context(), hold).ReadAll(); err != nil {
			t.Fatal(err)
		}
		check := func(what string, lock int32, bound time.Duration, wantEnded, wantHeld bool) {
			t.Helper()
			ended, err := pg.FreeLock(t.Context(), db.Pool, lock, bound)
			held, _ := errors.AsType[*pg.HeldError](err)
			if ended != wantEnded || (held != nil) != wantHeld || held == nil && err != nil || held != nil && (held.PID != int(holder.PID()) || held.App != c.name) {
				t.Errorf("%s, %s: ended %t, %v", c.name, what, ended, err)
			}
		}
		check("within the bound", 7, time.Hour, false, !c.ended)
		check("another lock", 8, 0, false, false)
		// The backend says that it waits for its client a moment after it has
		// answered.
		waitIdle(t, db, c.name)
		check("past the bound", 7, time.Microsecond, c.ended, !c.ended)
		_, err = holder.Exec(t.Context(), `COMMIT`).ReadAll()
		if died := err != nil; died != c.ended {
			t.Errorf("%s: holder died: %v (%v)", c.name, died, err)
		}
		// It reads the server's last word, or finds the socket closed already.
		if err != nil && !pg.Retryable(err) {
			t.Errorf("%s: holder ended by something else: %v", c.name, err)
		}
	}
}

func waitIdle(t *testing.T, db pgtest.DB, name string) {
	t.Helper()
	testkit.Eventually(t, "the session waits for its client", func() (idle bool) {
		err := db.Pool.QueryRow(t.Context(), `
SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND application_name = $1 AND wait_event_type = 'Client')`, name).Scan(&idle)
		if err != nil {
			t.Fatal(err)
		}
		return idle
	})
}

// TestNotYet: PostgreSQL may come. What only other settings can change is no reason to wait.
func TestNotYet(t *testing.T) {
	t.Parallel()
	db := pgtest.Open(t)
	answer := func(code string) error { return &pgconn.PgError{Code: code} }
	for _, c := range []struct {
		err  error
		want bool
	}{
		{nil, false},
		{errors.New("server refused TLS connection"), false},
		{answer("57P03"), true}, // starts, stops, or recovers
		{answer("53300"), true},
		{answer("28P01"), false},
		{answer("3D000"), false},
		{answer("42501"), false},
		{&net.OpError{Op: "remote error", Err: errors.New("tls: bad certificate")}, false},
		{errors.Join(errors.New("server refused TLS connection"), answer("57P03")), true}, // sslmode=prefer
		{errors.Join(&net.DNSError{Err: "no such host"}, answer("28P01")), false},         // two hosts
		{context.Canceled, false},
	} {
		if got := pg.NotYet(c.err); got != c.want {
			t.Errorf("NotYet(%v) = %v", c.err, got)
		}
	}
	for url, want := range map[string]bool{
		"postgres://nobody@127.0.0.1:1/nothing":                  true,
		"postgres://nobody@no-such-host.invalid/nothing":         true,
		"host=/nonexistent-directory dbname=none":                true,
		db.URL + "&target_session_attrs=standby":                 true,
		strings.Replace(db.URL, "/test_", "/none_", 1):           false,
		strings.Replace(db.URL, "user=tidewire", "user=none", 1): false,
	} {
		if _, err := pg.Open(t.Context(), pg.PoolConfig{URL: url}); err == nil || pg.NotYet(err) != want {
			t.Errorf("%s: NotYet(%v) = %v", url, err, !want)
		}
	}
}
