package pg_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/pg"
	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/internal/testkit"
)

// TestReplicated_OnTheCallersPool: also on a pool that Tidewire has not made, a COMMIT whose wait for a standby
// is canceled is reported. The pool keeps its limit and its hooks, and receives its notices.
func TestReplicated_OnTheCallersPool(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t)
	watcher := openPool(t, pg.PoolConfig{URL: server.URL()})
	for _, sql := range []string{`CREATE TABLE public.t (n int)`, `ALTER SYSTEM SET synchronous_standby_names = 'nobody'`, `SELECT pg_reload_conf()`} {
		if _, err := watcher.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	cfg, err := pgxpool.ParseConfig(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	cfg.MaxConns = 2
	var told atomic.Int64
	cfg.ConnConfig.OnNotice = func(*pgconn.PgConn, *pgconn.Notice) { told.Add(1) }
	cfg.BeforeConnect = func(_ context.Context, cc *pgx.ConnConfig) error {
		cc.RuntimeParams["tidewire.before"] = "yes"
		return nil
	}
	cfg.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, `SET tidewire.after = 'yes'`)
		return err
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	awaitSetting(t, pool)

	writer := held(t, pool)
	s := writer.Session()
	var before, after string
	if err := s.Conn().QueryRow(t.Context(), `SELECT current_setting('tidewire.before'), current_setting('tidewire.after')`).Scan(&before, &after); err != nil {
		t.Errorf("the pool's hooks were not called: %v", err)
	}
	if n := pool.Stat().AcquiredConns(); n != 1 {
		t.Errorf("%d places of the pool are taken, want 1", n)
	}
	end := cancelWaits(t, watcher)
	_, err = s.Conn().Exec(t.Context(), `INSERT INTO public.t VALUES (1)`)
	if err := s.Replicated(err); !errors.Is(err, pg.ErrNotReplicated) {
		t.Errorf("a session's COMMIT that was canceled: %v, want ErrNotReplicated", err)
	}
	writer.Close()
	var batch pgx.Batch
	batch.Queue(`INSERT INTO public.t VALUES (2)`)
	if err := pg.SendBatch(t.Context(), pool, &batch); !errors.Is(err, pg.ErrNotReplicated) {
		t.Errorf("a batch's COMMIT that was canceled: %v, want ErrNotReplicated", err)
	}
	// The mark of an earlier COMMIT without its wait, which nobody has read, does not affect the COMMIT of the connection's next user.
	single := openPool(t, pg.PoolConfig{URL: server.URL(), MaxConns: 1})
	if _, err := single.Exec(t.Context(), `INSERT INTO public.t VALUES (3)`); err != nil {
		t.Fatal(err)
	}
	end()
	var next pgx.Batch
	next.Queue(`SELECT 1`)
	if err := pg.SendBatch(t.Context(), single, &next); err != nil {
		t.Errorf("a batch that commits nothing: %v", err)
	}
	if n := told.Load(); n < 2 {
		t.Errorf("the pool's owner was told %d notices, want 2", n)
	}
	testkit.Eventually(t, "the pool has let go of the closed connections", func() bool { return pool.Stat().AcquiredConns() == 0 })
}

// awaitSetting waits until new sessions see that commits wait.
func awaitSetting(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	testkit.Eventually(t, "commits wait", func() bool {
		var names string
		if err := pool.QueryRow(t.Context(), `SHOW synchronous_standby_names`).Scan(&names); err != nil {
			t.Fatal(err)
		}
		return names != ""
	})
	// Commits wait once the checkpointer has seen it, too, which it does before it makes a checkpoint.
	if _, err := pool.Exec(t.Context(), `CHECKPOINT`); err != nil {
		t.Fatal(err)
	}
}

// cancelWaits cancels all waits of COMMITs until it is ended.
func cancelWaits(t *testing.T, pool *pgxpool.Pool) (end func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			pool.Exec(ctx, `SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'`)
		}
	}()
	end = func() { cancel(); <-done }
	t.Cleanup(end)
	return end
}
