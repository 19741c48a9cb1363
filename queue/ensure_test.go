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
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/pg"
	"github.com/tidewire/tidewire/queue"
	"github.com/tidewire/tidewire/stream"
)

// others are transactions that use the stream at the same time, as SQL with its id.
var others = map[string][]string{
	"publish": { // as a Writer does
		`SELECT tidewire.take_shared(%d, 1, 4711, 1)`,
		`INSERT INTO tidewire.shared_message (stream, position, keyed, payload) VALUES (%d, 1, false, 'x')`,
	},
	"group": {`SELECT tidewire.ensure_group(%d, 'readers', 0)`},
}

// ensuring is an Ensure that waits for a transaction of others.
type ensuring struct {
	pool *pgxpool.Pool
	name string
	opts queue.Options
	tx   pgx.Tx // of the others
	made chan error
}

// eachEnsuring runs the test beside each of the others, for an ordinary queue and
// one with partitions.
func eachEnsuring(t *testing.T, test func(t *testing.T, e *ensuring)) {
	for other, statements := range others {
		for _, opts := range []queue.Options{{}, {Partitions: 2}} {
			t.Run(fmt.Sprintf("%s, %d partitions", other, opts.Partitions), func(t *testing.T) {
				t.Parallel()
				test(t, startEnsure(t, opts, statements))
			})
		}
	}
}

func startEnsure(t *testing.T, opts queue.Options, statements []string) *ensuring {
	t.Helper()
	db := migrated.Open(t)
	e := &ensuring{pool: db.Pool, name: "orders", opts: opts, made: make(chan error, 1)}
	of := e.name
	if opts.Partitions > 0 {
		of += "/1"
	}
	s, err := stream.Ensure(t.Context(), db.Pool, of, stream.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if e.tx, err = db.Pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.ReadCommitted}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.tx.Rollback(context.Background()) })
	for _, sql := range statements {
		if _, err := e.tx.Exec(t.Context(), fmt.Sprintf(sql, s.ID())); err != nil {
			t.Fatal(err)
		}
	}
	go func() { e.made <- e.ensure() }()
	return e
}

func (e *ensuring) ensure() error {
	_, err := queue.Ensure(context.Background(), e.pool, e.name, e.opts)
	return err
}

// awaitWaiting returns when Ensure waits for the others.
func (e *ensuring) awaitWaiting(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for waits := false; !waits; {
		err := e.pool.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database()
			AND cardinality(pg_blocking_pids(pid)) > 0)`).Scan(&waits)
		if err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-e.made:
			if pg.Code(err) == pg.CodeLockNotAvailable { // it has waited
				e.made <- err
				return
			}
			t.Fatalf("Ensure returned %v before the others had ended", err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// end returns what Ensure returns once the others have ended.
func (e *ensuring) end() error {
	err := <-e.made
	if pg.Code(err) == pg.CodeLockNotAvailable { // before they had
		err = e.ensure()
	}
	return err
}

// wantMade checks whether there is a queue.
func (e *ensuring) wantMade(t *testing.T, want bool) {
	t.Helper()
	_, err := queue.Lookup(t.Context(), e.pool, e.name)
	if want && err != nil || !want && !errors.Is(err, queue.ErrNotFound) {
		t.Errorf("look up the queue: %v; made: want %t", err, want)
	}
}

// TestEnsure_StreamInUseAtOnce: a stream that gets a message or a group while it is to
// become a queue's does not become one.
func TestEnsure_StreamInUseAtOnce(t *testing.T) {
	t.Parallel()
	eachEnsuring(t, func(t *testing.T, e *ensuring) {
		e.awaitWaiting(t)
		if err := e.tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := e.end(); !errors.Is(err, queue.ErrStreamInUse) {
			t.Errorf("Ensure: %v, want ErrStreamInUse", err)
		}
		e.wantMade(t, false)
	})
}

// TestEnsure_BesideRollback: a transaction that is rolled back does not stop Ensure.
func TestEnsure_BesideRollback(t *testing.T) {
	t.Parallel()
	eachEnsuring(t, func(t *testing.T, e *ensuring) {
		e.awaitWaiting(t)
		if err := e.tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := e.end(); err != nil {
			t.Errorf("Ensure: %v", err)
		}
		e.wantMade(t, true)
	})
}

// TestEnsure_StreamFrozen: Ensure does not wait forever for a transaction that does
// not end. It can be tried again.
func TestEnsure_StreamFrozen(t *testing.T) {
	t.Parallel()
	eachEnsuring(t, func(t *testing.T, e *ensuring) {
		select {
		case err := <-e.made:
			if pg.Code(err) != pg.CodeLockNotAvailable || !pg.Retryable(err) {
				t.Errorf("Ensure: %v, want one that can be tried again", err)
			}
		case <-time.After(time.Minute):
			t.Fatal("Ensure waits for ever")
		}
		e.wantMade(t, false)
		if err := e.tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := e.ensure(); err != nil {
			t.Errorf("Ensure, tried again: %v", err)
		}
		e.wantMade(t, true)
	})
}

// TestEnsure_NoDeadlock: concurrent operations on one name never deadlock.
func TestEnsure_NoDeadlock(t *testing.T) {
	t.Parallel()
	db := migrated.Open(t)
	_, err := db.Pool.Exec(t.Context(), `DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET deadlock_timeout = 2', current_database()); END $$`)
	if err != nil {
		t.Fatal(err)
	}
	pool := newPool(t, db.URL)
	t.Cleanup(pool.Close)
	for n := range 5 {
		atOnce(t, pool, fmt.Sprintf("orders-%d", n))
	}
}

// atOnce runs all operations on a queue and a stream concurrently, and fails if
// any of them ends in a deadlock.
func atOnce(t *testing.T, pool *pgxpool.Pool, name string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s, err := stream.Ensure(ctx, pool, name+"/1", stream.Options{})
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
		"ensure partitions":   func() error { return ensure(name, queue.Options{Partitions: 2}) },
		"drop the partitions": func() error { return queue.Drop(ctx, pool, name) },
		"drop the stream":     func() error { return stream.Drop(ctx, pool, s.Name()) },
		"set the retention":   func() error { return s.SetRetention(ctx, stream.Retention{MaxAge: time.Hour}) },
		"open a group": func() error {
			_, err := stream.NewGroups(pool, stream.GroupsConfig{}).Open(ctx, s, "readers", stream.GroupOptions{})
			return err
		},
		"publish": func() error {
			_, err := pool.Exec(ctx, `SELECT tidewire.publish($1 || '/' || n, NULL, NULL, 'x') FROM generate_series(0, 1) AS n`, name)
			return err
		},
	} {
		running.Go(func() {
			for range 5 {
				var refused *pgconn.PgError
				if err := do(); errors.As(err, &refused) && refused.Code == "40P01" {
					t.Errorf("%s: %v\n%s", what, err, refused.Detail)
				}
			}
		})
	}
	running.Wait()
}
