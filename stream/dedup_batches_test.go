package stream

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/pg"
	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/internal/testkit"
	"github.com/tidewire/tidewire/migrate"
)

var template = pgtest.NewTemplate("stream", func(ctx context.Context, pool *pgxpool.Pool) error {
	_, err := migrate.Up(ctx, pool)
	if err == nil {
		_, err = migrate.Ingest(ctx, pool, pg.DefaultTable)
	}
	return err
})

func migrated(t *testing.T) pgtest.DB {
	t.Helper()
	return template.Open(t)
}

func mustExec(t *testing.T, db pgtest.DB, sql string, args ...any) {
	t.Helper()
	if _, err := db.Pool.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func wantMarks(t *testing.T, db pgtest.DB, what string, want int) {
	t.Helper()
	var marks int
	if err := db.Pool.QueryRow(t.Context(), `SELECT count(*) FROM tidewire.batch`).Scan(&marks); err != nil || marks != want {
		t.Errorf("%s there are %d marks, %v, want %d", what, marks, err, want)
	}
}

func oneRow() *rowBatch {
	var b rowBatch
	b.Append([]byte("x"))
	return &b
}

// TestWriter_ForgetsItsOwnMarks: it deletes only its own marks, and not too many
// after one batch.
func TestWriter_ForgetsItsOwnMarks(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	w := newTableWriter(db.Pool, "", WriterConfig{})
	defer w.Close()
	const reached = forgetAtOnce*2 + 100
	mustExec(t, db, `INSERT INTO tidewire.batch SELECT 5, n, n, now() - interval '2 days' FROM generate_series(1, 10) AS n`)
	mustExec(t, db, `INSERT INTO tidewire.batch SELECT $1, n, n FROM generate_series(0, $2 - 1) AS n`, w.id, reached)
	w.number, w.marks = reached-1, batchGC{since: time.Now().Add(-keepMarks), number: reached}
	for n, left := range []int{forgetAtOnce + 100, 100, 0, 0} {
		if err := w.Write(t.Context(), oneRow()); err != nil {
			t.Fatal(err)
		}
		wantMarks(t, db, "after a batch", 10+left+n+1)
	}
}

// TestWriter_KeepsMarksOfUnansweredBatches: an attempt without an answer may hang for any
// time, and must then find the mark of the committed attempt.
func TestWriter_KeepsMarksOfUnansweredBatches(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	w := newTableWriter(db.Pool, "", WriterConfig{})
	defer w.Close()
	mustExec(t, db, `INSERT INTO tidewire.batch SELECT $1, n, n FROM generate_series(0, 99) AS n`, w.id)
	for _, number := range []int64{7, 7, 50} {
		w.marks.doubt(number)
	}
	w.number = 99
	w.marks.since, w.marks.number = time.Now().Add(-keepMarks), 100
	if err := w.Write(t.Context(), oneRow()); err != nil {
		t.Fatal(err)
	}
	wantMarks(t, db, "after a batch", 3) // and its own
}

// TestCommitter_ForgetsItsOwnMarks, as a writer does.
func TestCommitter_ForgetsItsOwnMarks(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	c := joinCommitter(db.Pool)
	defer c.leave()
	mustExec(t, db, `INSERT INTO tidewire.batch SELECT $1, n, n FROM generate_series(0, 99) AS n`, c.id)
	c.do(func(*round) {
		c.number, c.marks = 99, batchGC{since: time.Now().Add(-keepMarks), number: 100}
		c.alone++ // as if another stream wrote alone
	})
	s, err := Ensure(t.Context(), db.Pool, "s", Options{})
	if err != nil {
		t.Fatal(err)
	}
	a := NewAppender(db.Pool, s, AppenderConfig{})
	a.Start()
	defer a.Stop()
	for n := range 3 { // it begins alone
		if _, err := a.Append(t.Context(), Message{}); err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			testkit.Eventually(t, "it writes with others", func() bool { return !a.alone.Load() })
		}
	}
	var marks int
	if err := db.Pool.QueryRow(t.Context(), `SELECT count(*) FROM tidewire.batch WHERE writer = $1`, c.id).Scan(&marks); err != nil || marks != 2 {
		t.Errorf("%d marks, %v, want those of two rounds", marks, err)
	}
}

// TestWriterConfig_LockTimeout: it is bounded, because AtTime searches back by
// timeDisorder only.
func TestWriterConfig_LockTimeout(t *testing.T) {
	t.Parallel()
	if got := (WriterConfig{LockTimeout: time.Hour}).withDefaults().LockTimeout; got >= timeDisorder {
		t.Errorf("a writer waits for the lock for %v, and Since looks back by %v", got, timeDisorder)
	}
}

// TestWriter_SlowLine: a batch that takes longer than Timeout gets through.
func TestWriter_SlowLine(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	mustExec(t, db, `CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.3); RETURN new; END $$`)
	mustExec(t, db, `CREATE TRIGGER slow BEFORE INSERT ON public.messages FOR EACH ROW EXECUTE FUNCTION slow()`)
	w := newTableWriter(db.Pool, "", WriterConfig{Timeout: 50 * time.Millisecond, LockTimeout: 5 * time.Second})
	defer w.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := w.Write(ctx, oneRow()); err != nil {
		t.Fatal(err)
	}
	var rows int
	if err := db.Pool.QueryRow(t.Context(), `SELECT count(*) FROM messages`).Scan(&rows); err != nil || rows != 1 {
		t.Errorf("%d rows, %v, want 1", rows, err)
	}
}

// TestSharedRequests_OneForAll: one goroutine of the committer rotates the records of all shared
// streams of a pool; the Appender of a stream with its own tables rotates that stream's records.
func TestSharedRequests_OneForAll(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	c := joinCommitter(db.Pool)
	defer c.leave()
	for i := range 3 {
		s, err := Ensure(t.Context(), db.Pool, fmt.Sprint("s", i), Options{OwnTables: i == 2})
		if err != nil {
			t.Fatal(err)
		}
		a := NewAppender(db.Pool, s, AppenderConfig{})
		a.Start()
		running.Go(func() { <-ctx.Done(); a.Stop() })
		if _, err := a.Append(t.Context(), Message{}); err != nil {
			t.Fatal(err)
		}
		if i == 0 && c.keeper.recorded != nil {
			t.Error("records are kept before there are any")
		}
		if _, err := a.AppendAs(t.Context(), RequestID{Client: "p", Sequence: 1}, Message{}); err != nil {
			t.Fatal(err)
		}
		if keeps := a.keeper.recorded != nil; keeps != (i == 2) || c.keeper.recorded == nil {
			t.Errorf("stream %d: its Appender keeps records: %t, the committer does: %t", i, keeps, c.keeper.recorded != nil)
		}
	}
}

// TestHot_BesideAMove: a stream that does not need its own tables yet is written to while
// another one moves.
func TestHot_BesideAMove(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	s, err := Ensure(t.Context(), db.Pool, "hot", Options{})
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	defer running.Wait()
	defer stop()
	a := NewAppender(db.Pool, s, AppenderConfig{})
	a.Start()
	running.Go(func() { <-ctx.Done(); a.Stop() })
	slot := moves.Join(db.Pool, func() chan struct{} { return make(chan struct{}, 1) })
	defer moves.Leave(db.Pool)
	slot <- struct{}{}
	s.storage.stored(1, hotRows)
	for _, shared := range []bool{true, false} {
		if _, err := a.Append(t.Context(), Message{}); err != nil {
			t.Fatal(err)
		}
		if s.storage.shared() != shared {
			t.Errorf("shared is %t, want %t", !shared, shared)
		}
		if shared {
			<-slot
		}
	}
}

// TestHot: a stream with many messages in a second gets its own tables with the next
// message, whichever way that is written.
func TestHot(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	for _, beside := range []bool{false, true} {
		var running sync.WaitGroup
		ctx, stop := context.WithCancel(t.Context())
		appenderTo := func(name string) (*Stream, *Appender) {
			s, err := Ensure(t.Context(), db.Pool, name, Options{})
			if err != nil {
				t.Fatal(err)
			}
			a := NewAppender(db.Pool, s, AppenderConfig{})
			a.Start()
			running.Go(func() { <-ctx.Done(); a.Stop() })
			if _, err := a.Append(t.Context(), Message{}); err != nil {
				t.Fatal(err)
			}
			return s, a
		}
		_, other := appenderTo("other")
		s, a := appenderTo("hot")
		if beside {
			running.Go(func() {
				for ctx.Err() == nil {
					other.Append(ctx, Message{})
				}
			})
		}
		if s.storage.outgrown() {
			t.Error("hot too early")
		}
		s.storage.stored(1, hotRows)
		if _, err := a.Append(t.Context(), Message{}); err != nil {
			t.Fatal(err)
		}
		var shared bool
		if err := db.Pool.QueryRow(t.Context(), `SELECT shared FROM tidewire.stream WHERE id = $1`, s.id).Scan(&shared); err != nil || shared {
			t.Errorf("shared is %t, %v", shared, err)
		}
		stop()
		running.Wait()
		if err := Drop(t.Context(), db.Pool, "hot"); err != nil {
			t.Fatal(err)
		}
	}
}
