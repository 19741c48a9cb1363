package stream

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/pg"
	"github.com/tidewire/tidewire/internal/pgtest"
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
	mustExec(t, db, `CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.6); RETURN new; END $$`)
	mustExec(t, db, `CREATE TRIGGER slow BEFORE INSERT ON public.messages FOR EACH ROW EXECUTE FUNCTION slow()`)
	w := newTableWriter(db.Pool, "", WriterConfig{Timeout: 150 * time.Millisecond, LockTimeout: 5 * time.Second})
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

// TestWriter_NoTemporaryTables: a role that may not create temporary tables writes
// without staging.
func TestWriter_NoTemporaryTables(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	var role string
	if err := db.Pool.QueryRow(t.Context(), `SELECT current_database() || '_writer'`).Scan(&role); err != nil {
		t.Fatal(err)
	}
	mustExec(t, db, `DO $$ BEGIN EXECUTE format('REVOKE TEMPORARY ON DATABASE %I FROM PUBLIC', current_database()); END $$`)
	mustExec(t, db, fmt.Sprintf(`CREATE ROLE %[1]s; GRANT USAGE ON SCHEMA tidewire TO %[1]s; GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA tidewire TO %[1]s;
		GRANT ALL ON ALL TABLES IN SCHEMA tidewire TO %[1]s; GRANT ALL ON ALL SEQUENCES IN SCHEMA tidewire TO %[1]s;
		GRANT ALL ON public.messages, public.messages_position_seq TO %[1]s`, role))
	cfg, err := pgxpool.ParseConfig(db.URL)
	if err != nil {
		t.Fatal(err)
	}
	cfg.ConnConfig.RuntimeParams["role"] = role
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	w := newTableWriter(pool, "", WriterConfig{})
	w.line.slow = true
	var b rowBatch
	b.Append(make([]byte, 2*stagedBytes))
	err = w.Write(t.Context(), &b)
	w.Close()
	pool.Close()
	if err != nil || !w.line.direct {
		t.Errorf("a large batch: %v; sent directly: %t", err, w.line.direct)
	}
	mustExec(t, db, fmt.Sprintf(`DROP OWNED BY %[1]s; DROP ROLE %[1]s`, role))
}

// TestWriter_KnowsTheHeadAfterARejection: a rejected batch has moved the sequence,
// and the writer's next COPY still succeeds at once.
func TestWriter_KnowsTheHeadAfterARejection(t *testing.T) {
	t.Parallel()
	for name, method := range map[string]Method{"array": Array, "copy": Copy} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := migrated(t)
			mustExec(t, db, `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no'; END $$`)
			mustExec(t, db, `CREATE TRIGGER refuse BEFORE INSERT ON public.messages FOR EACH ROW WHEN (new.payload = 'bad') EXECUTE FUNCTION refuse()`)
			w := newTableWriter(db.Pool, "", WriterConfig{Method: method})
			defer w.Close()
			for n := range 3 {
				if err := w.Write(t.Context(), oneRow()); err != nil {
					t.Fatal(err)
				}
				var bad Batch
				bad.Append([]byte("bad"))
				if err := w.Write(t.Context(), &bad); err == nil {
					t.Fatal("a bad message was taken")
				}
				if want := int64(2 * (n + 1)); w.head != want {
					t.Errorf("the writer takes %d for the head, want %d", w.head, want)
				}
			}
		})
	}
}
