package stream_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/ingestlog"
	"github.com/tidewire/tidewire/internal/pg"
	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/migrate"
	"github.com/tidewire/tidewire/stream"
)

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

type row struct {
	Position int64
	Payload  []byte
}

func stored(t *testing.T, db pgtest.DB) []row {
	t.Helper()
	rows, err := db.Pool.Query(t.Context(), `SELECT position, payload FROM messages ORDER BY position`)
	if err != nil {
		t.Fatal(err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[row])
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func batchOf(payloads ...[]byte) *stream.Batch {
	var b stream.Batch
	for _, p := range payloads {
		b.Append(p)
	}
	return &b
}

func TestWriter_EveryMethodStoresEveryPayload(t *testing.T) {
	t.Parallel()
	payloads := [][]byte{
		{}, []byte("text"), {0}, {0xff, 0x00, 0xfe}, bytes.Repeat([]byte{7}, 1<<20), []byte("last"),
	}
	for name, method := range map[string]stream.Method{"auto": stream.Auto, "array": stream.Array, "copy": stream.Copy} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := setup(t)
			w := stream.NewWriter(db.Pool, stream.WriterConfig{Method: method})
			defer w.Close()
			for round := range 3 {
				b := batchOf(payloads...)
				if err := w.Write(t.Context(), b); err != nil {
					t.Fatal(err)
				}
				if want := int64(round*len(payloads) + 1); b.First != want {
					t.Errorf("batch %d begins at %d, want %d", round, b.First, want)
				}
			}
			rows := stored(t, db)
			if len(rows) != 3*len(payloads) {
				t.Fatalf("%d rows, want %d", len(rows), 3*len(payloads))
			}
			for i, r := range rows {
				if r.Position != int64(i+1) || !bytes.Equal(r.Payload, payloads[i%len(payloads)]) {
					t.Errorf("row %d: position %d, %d bytes, want payload %d", i, r.Position, len(r.Payload), i%len(payloads))
				}
			}
		})
	}
}

// TestWriter_VisibleOrderIsPositionOrder runs several writers, with both methods,
// beside a reader: once the reader has seen a position, nothing may appear below
// it.
func TestWriter_VisibleOrderIsPositionOrder(t *testing.T) {
	t.Parallel()
	db := setup(t)
	const writers, batches = 4, 60
	var writing sync.WaitGroup
	for n := range writers {
		writing.Go(func() {
			random := rand.New(rand.NewPCG(uint64(n), 1))
			w := stream.NewWriter(db.Pool, stream.WriterConfig{Method: stream.Array + stream.Method(n%2)})
			defer w.Close()
			for range batches {
				var b stream.Batch
				for range 1 + random.IntN(20) {
					b.Append([]byte{byte(n)})
				}
				if err := w.Write(t.Context(), &b); err != nil {
					t.Error(err)
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { writing.Wait(); close(done) }()
	var last, seen int64
	for looks, over := 0, false; !over; looks++ {
		select {
		case <-done:
			over = true
		default:
		}
		var below, highest int64
		err := db.Pool.QueryRow(t.Context(),
			`SELECT count(*) FILTER (WHERE position <= $1), coalesce(max(position), 0) FROM messages`, last).Scan(&below, &highest)
		if err != nil {
			t.Fatal(err)
		}
		if below != seen {
			t.Fatalf("after %d looks: %d rows up to position %d, and there were %d", looks, below, last, seen)
		}
		last = highest
		if err := db.Pool.QueryRow(t.Context(), `SELECT count(*) FROM messages WHERE position <= $1`, last).Scan(&seen); err != nil {
			t.Fatal(err)
		}
	}
	if last == 0 {
		t.Error("nothing was seen")
	}
}

// smallPool is a pool on db with conns connections.
func smallPool(t *testing.T, db pgtest.DB, conns int32) *pgxpool.Pool {
	t.Helper()
	pool := poolWith(t, db.URL, func(cfg *pgxpool.Config) {
		cfg.MaxConns = conns
	})
	return pool
}

func TestWriter_FreesLockOfFrozenHolder(t *testing.T) {
	t.Parallel()
	db := setup(t)
	frozen, err := pgconn.Connect(t.Context(), db.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer frozen.Close(context.Background())
	// A client that has begun a COPY under the lock and then sends nothing.
	frozen.Frontend().SendQuery(&pgproto3.Query{String: fmt.Sprintf(
		`SET application_name = '%s'; BEGIN; SELECT pg_advisory_xact_lock(%d, %d); COPY messages (position, payload) FROM STDIN`,
		pg.WriterName, pg.LockClass, stream.LockMessages)})
	if err := frozen.Frontend().Flush(); err != nil {
		t.Fatal(err)
	}
	for held := false; !held; {
		if err := db.Pool.QueryRow(t.Context(),
			`SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))`).Scan(&held); err != nil {
			t.Fatal(err)
		}
	}
	w := stream.NewWriter(db.Pool, stream.WriterConfig{LockTimeout: 200 * time.Millisecond})
	defer w.Close()
	if err := w.Write(t.Context(), batchOf([]byte("x"))); err != nil {
		t.Fatal(err)
	}
	if rows := stored(t, db); len(rows) != 1 {
		t.Errorf("%d rows, want 1", len(rows))
	}
}

func TestWriter_DefiniteErrorStoresNothing(t *testing.T) {
	t.Parallel()
	db := setup(t)
	w := stream.NewWriter(db.Pool, stream.WriterConfig{})
	defer w.Close()
	exec(t, db.Pool, `ALTER TABLE messages ADD CHECK (payload <> 'bad')`)
	if err := w.Write(t.Context(), batchOf([]byte("good"), []byte("bad"))); pg.Code(err) != "23514" {
		t.Fatalf("Write: %v, want the check violation", err)
	}
	if err := w.Write(t.Context(), batchOf([]byte("good"))); err != nil {
		t.Fatalf("Write after a failed one: %v", err)
	}
	if rows := stored(t, db); len(rows) != 1 {
		t.Errorf("%d rows, want 1", len(rows))
	}
}

func TestRecreate_EmptiesAndKeepsWriterGoing(t *testing.T) {
	t.Parallel()
	db := setup(t)
	w := stream.NewWriter(db.Pool, stream.WriterConfig{})
	defer w.Close()
	for range 2 {
		if err := w.Write(t.Context(), batchOf([]byte("x"))); err != nil {
			t.Fatal(err)
		}
		if rows := stored(t, db); len(rows) != 1 || rows[0].Position != 1 {
			t.Fatalf("rows %v, want one at position 1", rows)
		}
		if err := ingestlog.Recreate(t.Context(), db.Pool, ""); err != nil {
			t.Fatal(err)
		}
	}
	if rows := stored(t, db); len(rows) != 0 {
		t.Errorf("%d rows after Recreate", len(rows))
	}
}
