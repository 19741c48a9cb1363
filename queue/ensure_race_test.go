package queue_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tidewire/tidewire/internal/pg"
	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/internal/testkit"
	"github.com/tidewire/tidewire/queue"
	"github.com/tidewire/tidewire/stream"
)

// user is an open transaction that uses a stream whose name a queue is to get, as SQL with its id.
func user(t *testing.T, db pgtest.DB, name, sql string) pgx.Tx {
	t.Helper()
	s, err := stream.Ensure(t.Context(), db.Pool, name, stream.Options{})
	if err != nil {
		t.Fatal(err)
	}
	tx, err := db.Pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tx.Rollback(context.Background()) })
	mustExec(t, tx, fmt.Sprintf(sql, s.ID()), pgx.QueryExecModeSimpleProtocol)
	return tx
}

// publishes is what a Writer does.
const publishes = `SELECT tidewire.take_shared(%[1]d, 1, %[1]d, 1);
	INSERT INTO tidewire.shared_message (stream, position, keyed, payload) VALUES (%[1]d, 1, false, 'x')`

// TestEnsure_StreamInUseAtOnce: a stream that gets a message or a group while it is to become a queue's does not become one. A
// transaction that is rolled back does not stop Ensure.
func TestEnsure_StreamInUseAtOnce(t *testing.T) {
	t.Parallel()
	db := migrated.Open(t)
	for what, sql := range map[string]string{"publish": publishes, "group": `SELECT tidewire.ensure_group(%d, 'readers', 0)`} {
		for of, opts := range map[string]queue.Options{"": {}, "/1": {Partitions: 2}} {
			for _, commits := range []bool{true, false} {
				name := fmt.Sprint(what, len(of), commits)
				tx := user(t, db, name+of, sql)
				made := make(chan error, 1)
				go func() {
					_, err := queue.Ensure(t.Context(), db.Pool, name, opts)
					for pg.Code(err) == pg.CodeLockNotAvailable { // the transaction lasted for too long
						_, err = queue.Ensure(t.Context(), db.Pool, name, opts)
					}
					made <- err
				}()
				testkit.Eventually(t, "Ensure waits", func() bool { return len(made) > 0 || waitForLocks(t, db.Pool) > 0 })
				end, want := tx.Rollback, error(nil)
				if commits {
					end, want = tx.Commit, queue.ErrStreamInUse
				}
				if err := end(t.Context()); err != nil {
					t.Fatal(err)
				}
				if err := <-made; !errors.Is(err, want) {
					t.Errorf("%s: %v, want %v", name, err, want)
				}
				if _, err := queue.Lookup(t.Context(), db.Pool, name); (err == nil) == commits {
					t.Errorf("%s, looked up: %v", name, err)
				}
			}
		}
	}
}

// TestEnsure_StreamFrozen: Ensure does not wait forever for a transaction that does not end. It can be tried again.
func TestEnsure_StreamFrozen(t *testing.T) {
	slow(t)
	t.Parallel()
	db := migrated.Open(t)
	tx := user(t, db, "orders", publishes)
	ensure := func() error {
		_, err := queue.Ensure(t.Context(), db.Pool, "orders", queue.Options{})
		return err
	}
	if err := ensure(); pg.Code(err) != pg.CodeLockNotAvailable || !pg.Retryable(err) {
		t.Errorf("Ensure: %v, want one that can be tried again", err)
	}
	if _, err := queue.Lookup(t.Context(), db.Pool, "orders"); !errors.Is(err, queue.ErrNotFound) {
		t.Errorf("look up the queue: %v", err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := ensure(); err != nil {
		t.Errorf("Ensure, tried again: %v", err)
	}
}

// TestFamily_StrictIsolation drops a family, and makes one whose drop was interrupted, while another session has changed its
// row: at a strict default isolation level it only waits for that session.
func TestFamily_StrictIsolation(t *testing.T) {
	t.Parallel()
	opts := queue.Options{Partitions: 2}
	for _, isolation := range []string{"repeatable read", "serializable"} {
		db, _ := setup(t, opts)
		pgtest.SetDefaults(t, db, map[string]string{"default_transaction_isolation": isolation})
		for _, step := range []struct {
			while string
			call  func() error
		}{
			{`UPDATE tidewire.queue_family SET dropping = true`, func() error {
				_, err := queue.Ensure(t.Context(), db.Pool, "jobs", opts)
				return err
			}},
			{`UPDATE tidewire.queue_family SET partitions = partitions`, func() error { return queue.Drop(t.Context(), db.Pool, "jobs") }},
		} {
			mustExec(t, db.Pool, step.while)
			tx := begin(t, db.Pool)
			mustExec(t, tx, step.while)
			done := make(chan error, 1)
			go func() { done <- step.call() }()
			testkit.Eventually(t, "it waits for the other session", func() bool { return waitForLocks(t, db.Pool) > 0 })
			if err := tx.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := <-done; err != nil {
				t.Errorf("%s: %v", isolation, err)
			}
		}
	}
}

// TestEnsure_ManyAtOnce: concurrent operations on one name never deadlock, and Ensure succeeds even while others drop the queue.
func TestEnsure_ManyAtOnce(t *testing.T) {
	slow(t)
	t.Parallel()
	db := migrated.Open(t)
	pgtest.SetDefaults(t, db, map[string]string{"deadlock_timeout": "2"})
	pool := newPool(t, db.URL)
	t.Cleanup(pool.Close)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s, err := stream.Ensure(ctx, pool, "orders/1", stream.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ensure := func(name string, opts queue.Options) error {
		_, err := queue.Ensure(ctx, pool, name, opts)
		return err
	}
	var running sync.WaitGroup
	for what, do := range map[string]func() error{
		"ensure a queue":      func() error { return ensure(s.Name(), queue.Options{}) },
		"ensure partitions":   func() error { return ensure("orders", queue.Options{Partitions: 2}) },
		"drop the partitions": func() error { return queue.Drop(ctx, pool, "orders") },
		"drop the stream":     func() error { return stream.Drop(ctx, pool, s.Name()) },
		"set the retention":   func() error { return s.SetRetention(ctx, stream.Retention{MaxAge: time.Hour}) },
		"open a group": func() error {
			_, err := stream.NewGroups(pool, stream.GroupsConfig{}).Open(ctx, s, "readers", stream.GroupOptions{})
			return err
		},
		"publish": func() error {
			_, err := pool.Exec(ctx, `SELECT tidewire.publish('orders/' || n, NULL, NULL, 'x') FROM generate_series(0, 1) AS n`)
			return err
		},
		"ensure contested":     func() error { return must(ensure("contested", queue.Options{})) },
		"drop contested":       func() error { return must(queue.Drop(ctx, pool, "contested")) },
		"ensure a family":      func() error { return must(ensure("family", queue.Options{Priorities: 2})) },
		"drop a family":        func() error { return must(queue.Drop(ctx, pool, "family")) },
		"ensure a family also": func() error { return must(ensure("family", queue.Options{Priorities: 2})) },
	} {
		running.Go(func() {
			for range 10 {
				var refused *pgconn.PgError
				err := do()
				if errors.As(err, &refused) && refused.Code == "40P01" {
					t.Errorf("%s: %v\n%s", what, err, refused.Detail)
				}
				if errors.Is(err, errMust) {
					t.Errorf("%s: %v", what, err)
				}
			}
		})
	}
	running.Wait()
}

// errMust marks an error of what has to succeed, unless there is nothing to drop.
var errMust = errors.New("want success")

func must(err error) error {
	if err == nil || errors.Is(err, queue.ErrNotFound) {
		return nil
	}
	return fmt.Errorf("%w: %w", errMust, err)
}
