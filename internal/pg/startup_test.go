package pg_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/pg"
	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/internal/testkit"
)

// TestOpen_LockedCatalogue: while a lock delays all start-ups, attempts that are given up do not add backends without a bound. When
// the lock is gone, connections work at once.
func TestOpen_LockedCatalogue(t *testing.T) {
	t.Parallel()
	const most = 8 + 4 // and those that are tried after 1, 3, 7 and 15 s
	server := pgtest.Start(t)
	holder, err := pgx.Connect(t.Context(), server.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Close(context.Background())
	patient := openPool(t, pg.PoolConfig{URL: server.URL(), MaxConns: 30, ConnectTimeout: time.Minute})
	patient.Reset()
	cfg := patient.Config()
	cfg.ConnConfig.ConnectTimeout = 50 * time.Millisecond
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	if _, err := holder.Exec(t.Context(), `BEGIN; LOCK TABLE pg_authid IN ACCESS EXCLUSIVE MODE`); err != nil {
		t.Fatal(err)
	}
	backends := func() (n int) {
		if err := holder.QueryRow(t.Context(), `SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 1260`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	var users sync.WaitGroup
	for range 30 {
		users.Go(func() {
			for range 5 {
				if err := pool.Ping(t.Context()); err == nil {
					t.Error("connected in spite of the lock")
				} else if !pg.Away(err) {
					t.Errorf("PostgreSQL is not away: %v", err)
				}
			}
		})
	}
	users.Wait()
	if n := backends(); n == 0 || n > most {
		t.Errorf("%d backends in start-up after 150 attempts, want 1 to %d", n, most)
	}
	if _, err := holder.Exec(t.Context(), `ROLLBACK`); err != nil {
		t.Fatal(err)
	}
	if err := patient.Ping(t.Context()); err != nil {
		t.Errorf("after the lock: %v", err)
	}
}

// TestOpen_ForgottenConnections: connections that something in between has forgotten, without closing them, do not end all attempts
// for ever.
func TestOpen_ForgottenConnections(t *testing.T) {
	t.Parallel()
	db := pgtest.Open(t)
	cfg := db.Pool.Config().ConnConfig
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var forgotten atomic.Int32
	var remembers atomic.Bool
	var passing sync.WaitGroup
	defer func() {
		l.Close()
		passing.Wait()
	}()
	pass := func(from, to net.Conn) {
		passing.Go(func() {
			defer to.Close()
			io.Copy(to, from)
		})
	}
	passing.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			if !remembers.Load() {
				forgotten.Add(1)
				go io.Copy(io.Discard, client)
				continue
			}
			server, err := net.Dial("unix", fmt.Sprintf("%s/.s.PGSQL.%d", cfg.Host, cfg.Port))
			if err != nil {
				client.Close()
				continue
			}
			pass(client, server)
			pass(server, client)
		}
	})
	open := func() error {
		pool, err := pg.Open(t.Context(), pg.PoolConfig{
			URL: fmt.Sprintf("postgres://%s@%s/%s?sslmode=disable", cfg.User, l.Addr(), cfg.Database), ConnectTimeout: 100 * time.Millisecond,
		})
		if err == nil {
			pool.Close()
		}
		return err
	}
	for range 10 {
		if err := open(); !pg.NotYet(err) {
			t.Fatalf("PostgreSQL may come: %v", err)
		}
	}
	if n := forgotten.Load(); n < 8 {
		t.Errorf("%d connections in start-up after ten attempts", n)
	}
	remembers.Store(true)
	testkit.Eventually(t, "connections come again", func() bool { return open() == nil })
}
