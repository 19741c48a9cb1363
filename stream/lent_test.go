package stream_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidewire/tidewire/internal/pg"
	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/internal/testkit"
	"github.com/tidewire/tidewire/migrate"
	"github.com/tidewire/tidewire/stream"
)

// TestWriter_TwoTables: Writers to two tables of messages share a session.
func TestWriter_TwoTables(t *testing.T) {
	t.Parallel()
	db := setup(t)
	if _, err := migrate.Ingest(t.Context(), db.Pool, "other"); err != nil {
		t.Fatal(err)
	}
	one := stream.NewWriter(db.Pool, stream.WriterConfig{Method: stream.Array})
	defer one.Close()
	two := stream.NewTableWriter(db.Pool, "other", stream.WriterConfig{Method: stream.Array})
	defer two.Close()
	for range 2 {
		if err := one.Write(t.Context(), batchOf([]byte("for messages"))); err != nil {
			t.Fatal(err)
		}
	}
	if err := two.Write(t.Context(), batchOf([]byte("for other"))); err != nil {
		t.Fatal(err)
	}
	var messages, other int
	if err := db.Pool.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM messages), (SELECT count(*) FROM other)`).Scan(&messages, &other); err != nil {
		t.Fatal(err)
	}
	if messages != 2 || other != 1 {
		t.Errorf("%d in messages, %d in other; want 2 and 1", messages, other)
	}
}

// lockStreams creates n streams whose locks a transaction holds.
func lockStreams(t *testing.T, db pgtest.DB, prefix string, n int) (all []*stream.Stream, tx pgx.Tx) {
	t.Helper()
	for i := range n {
		s := ensureWith(t, db.Pool, fmt.Sprint(prefix, i), stream.Options{})
		all = append(all, s)
	}
	tx = begin(t, db.Pool, pgx.ReadCommitted)
	for _, s := range all {
		exec(t, tx, `SELECT pg_advisory_xact_lock(1953064037, $1)`, s.ID())
	}
	return all, tx
}

// TestAppender_BesideLocked: streams whose locks another transaction holds delay no
// other stream, on pools with and without connections to wait on.
func TestAppender_BesideLocked(t *testing.T) {
	t.Parallel()
	for conns, kept := range map[int32]int{2: 2, 8: 30} {
		t.Run(fmt.Sprint(conns), func(t *testing.T) {
			t.Parallel()
			db := setup(t)
			pool := smallPool(t, db, conns)
			locked, tx := lockStreams(t, db, "locked", kept)
			free := ensureWith(t, db.Pool, "free", stream.Options{})
			var waiting sync.WaitGroup
			for _, s := range locked {
				a := run(t, pool, s, stream.AppenderConfig{Writer: stream.WriterConfig{LockTimeout: time.Minute}})
				waiting.Go(func() {
					if _, err := a.Append(context.Background(), messages("late")...); err != nil {
						t.Error(err)
					}
				})
			}
			a := run(t, pool, free, stream.AppenderConfig{})
			for range 20 {
				mustAppend(t, a, messages("free")...)
			}
			tx.Rollback(context.Background())
			waiting.Wait()
		})
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
					`DO $$ BEGIN PERFORM pg_advisory_xact_lock(1953064037, %d); PERFORM pg_sleep(0.3); END $$`, s.ID()))
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	testkit.Eventually(t, "all others to want the lock", func() bool {
		return value[int](t, db.Pool, `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = $1 AND NOT granted
			AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`, s.ID()) == 2
	})
	mustAppend(t, a, messages("second")...)
}
