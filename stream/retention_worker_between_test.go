package stream_test

import (
	"context"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/stream"
)

// beforeDrop calls a function once, before a RetentionWorker drops the messages that it has found.
type beforeDrop struct {
	once sync.Once
	do   func()
}

// isDrop matches the statements that drop messages.
var isDrop = regexp.MustCompile(`tidewire\.drop_(shared|expired)\(`)

func (b *beforeDrop) TraceBatchStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	for _, q := range data.Batch.QueuedQueries {
		if isDrop.MatchString(q.SQL) {
			b.once.Do(b.do)
		}
	}
	return ctx
}

func (*beforeDrop) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

func (*beforeDrop) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

func (*beforeDrop) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

func (*beforeDrop) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// keepWith applies retention once, and calls do between the lookup and the drop.
func keepWith(t *testing.T, db pgtest.DB, do func()) {
	t.Helper()
	cfg := db.Pool.Config()
	called := false
	cfg.ConnConfig.Tracer = &beforeDrop{do: func() { called = true; do() }}
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	if err := stream.NewRetentionWorker(pool, stream.RetentionWorkerConfig{}).Round(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !called {
		t.Fatal("nothing was dropped")
	}
}

// fillBoth stores a hundred messages older than oldAge, in a shared stream or one with its own tables.
func fillBoth(t *testing.T, db pgtest.DB, s *stream.Stream) {
	t.Helper()
	if isShared(t, db, s) {
		fill(t, db, s, 1, 100)
		return
	}
	mustAppend(t, run(t, db.Pool, s, stream.AppenderConfig{}), kilobytes(100)...)
	time.Sleep(2 * oldAge)
}

const oldAge = 5 * time.Millisecond

// wantKept wants the messages after a position to be stored.
func wantKept(t *testing.T, s *stream.Stream, after int64) {
	t.Helper()
	if msgs, err := s.Read(t.Context(), after, 1000); err != nil || len(msgs) != 100-int(after) {
		t.Errorf("%d messages after %d, %v", len(msgs), after, err)
	}
}

// TestRetentionWorker_GroupMadeBeforeADrop: a message stays until every group has read it, also a group
// that is created while the RetentionWorker runs.
func TestRetentionWorker_GroupMadeBeforeADrop(t *testing.T) {
	t.Parallel()
	ensureBoth(t, func(t *testing.T, db pgtest.DB, s *stream.Stream) {
		fillBoth(t, db, s)
		alter(t, db.Pool, s, stream.Retention{MaxAge: oldAge, Consumed: true})
		gs, _ := runGroups(t, db.Pool, stream.GroupsConfig{})
		if _, err := openGroup(t, gs, s, "first").Commit(t.Context(), 100); err != nil {
			t.Fatal(err)
		}
		var g *stream.Group
		var err error
		keepWith(t, db, func() {
			if g, err = gs.Open(context.Background(), s, "second", stream.GroupOptions{}); err != nil {
				t.Error(err)
			}
		})
		offset, err := g.Offset(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		wantKept(t, s, offset)
	})
}

// TestRetentionWorker_GroupSeeksBeforeADrop: the same for a group that seeks back.
func TestRetentionWorker_GroupSeeksBeforeADrop(t *testing.T) {
	t.Parallel()
	ensureBoth(t, func(t *testing.T, db pgtest.DB, s *stream.Stream) {
		fillBoth(t, db, s)
		alter(t, db.Pool, s, stream.Retention{MaxAge: oldAge, Consumed: true})
		gs, _ := runGroups(t, db.Pool, stream.GroupsConfig{})
		g := openGroup(t, gs, s, "first")
		if _, err := g.Commit(t.Context(), 100); err != nil {
			t.Fatal(err)
		}
		keepWith(t, db, func() {
			if err := g.Seek(context.Background(), 10); err != nil {
				t.Error(err)
			}
		})
		wantKept(t, s, 10)
	})
}

// TestRetentionWorker_AlteredBeforeADrop: nothing is dropped once SetRetention has returned that all is to be kept,
// or more than before.
func TestRetentionWorker_AlteredBeforeADrop(t *testing.T) {
	t.Parallel()
	for name, r := range map[string]stream.Retention{"all": {}, "unread": {Consumed: true}, "longer": {MaxAge: 48 * time.Hour}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ensureBoth(t, func(t *testing.T, db pgtest.DB, s *stream.Stream) {
				fillBoth(t, db, s)
				alter(t, db.Pool, s, stream.Retention{MaxAge: oldAge})
				keepWith(t, db, func() {
					if err := s.SetRetention(context.Background(), r); err != nil {
						t.Error(err)
					}
					wantKept(t, s, 0)
				})
				wantKept(t, s, 0)
			})
		})
	}
}

// TestRetentionWorker_LargeMessagesAfterSmall: the oldest messages are dropped while the stream is larger
// than MaxBytes.
func TestRetentionWorker_LargeMessagesAfterSmall(t *testing.T) {
	t.Parallel()
	db, s := ensure(t)
	fill(t, db, s, 1, 1000)
	if err := s.SetRetention(t.Context(), stream.Retention{MaxBytes: 1 << 20}); err != nil {
		t.Fatal(err)
	}
	keepOnce(t, db.Pool)
	exec(t, db.Pool, `INSERT INTO tidewire.shared_message (stream, position, keyed, key, payload)
		SELECT $1, n, true, 'k', (SELECT string_agg(sha256((n * 10000 + i)::text::bytea), '') FROM generate_series(1, 4000) AS i)
		FROM generate_series(1001, 1100) AS n`, s.ID())
	for range 3 {
		keepOnce(t, db.Pool)
	}
	var bytes int64
	if err := db.Pool.QueryRow(t.Context(), `SELECT sum(pg_column_size(payload)) FROM tidewire.shared_message`).Scan(&bytes); err != nil {
		t.Fatal(err)
	}
	if bytes > 2<<20 {
		t.Errorf("%d bytes are kept, of 1 MiB at most", bytes)
	}
}
