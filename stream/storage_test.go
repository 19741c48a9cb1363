package stream_test

import (
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/pg"
	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/stream"
)

// TestShared_ReadByAnOutdatedHandle: an outdated handle can read moved messages in all
// ways.
func TestShared_ReadByAnOutdatedHandle(t *testing.T) {
	t.Parallel()
	db, s := ensure(t)
	mustAppend(t, run(t, db.Pool, s, stream.AppenderConfig{}), stream.Message{Key: "k", Payload: []byte("1")}, stream.Message{Payload: []byte("2")})
	h, _ := runHub(t, db.Pool, stream.HubConfig{})
	for what, read := range map[string]func(*stream.Stream) (int, error){
		"Read": func(s *stream.Stream) (int, error) { all, err := s.Read(t.Context(), 0, 10); return len(all), err },
		"ReadKey": func(s *stream.Stream) (int, error) {
			all, err := s.ReadKey(t.Context(), "k", 0, math.MaxInt64, 10)
			return 2 * len(all), err
		},
		"Head": func(s *stream.Stream) (int, error) { head, err := s.Head(t.Context()); return int(head), err },
		"Info": func(s *stream.Stream) (int, error) { info, err := s.Info(t.Context()); return int(info.Head), err },
		"Since": func(s *stream.Stream) (int, error) {
			sub, err := h.Subscribe(t.Context(), s, stream.AtTime(time.Now().Add(-time.Hour)))
			if err != nil {
				return 0, err
			}
			defer sub.Close()
			page, err := sub.Next(t.Context())
			return len(page), err
		},
	} {
		other := ensureWith(t, db.Pool, "of "+what, stream.Options{Keyed: true})
		mustAppend(t, run(t, db.Pool, other, stream.AppenderConfig{}), stream.Message{Key: "k", Payload: []byte("1")}, stream.Message{Payload: []byte("2")})
		for range 2 {
			if n, err := read(other); n != 2 || err != nil {
				t.Errorf("%s: %d, %v", what, n, err)
			}
			moveStream(t, db.Pool, other)
		}
		isShared(t, db, other)
	}
	if !isShared(t, db, s) {
		t.Error("another stream has moved")
	}
}

// TestShared_OldSnapshot: a transaction whose snapshot does not show the end of the
// stream publishes after it, and later messages follow.
func TestShared_OldSnapshot(t *testing.T) {
	t.Parallel()
	for _, level := range levels[1:] {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			db, s := ensure(t)
			a := run(t, db.Pool, s, stream.AppenderConfig{})
			for round := range 3 {
				tx := begin(t, db.Pool, level)
				exec(t, tx, `SELECT 1`)
				mustAppend(t, a, stream.Message{Payload: fmt.Append(nil, round, " before")})
				publish(t, tx, s, fmt.Sprint(round, " old"))
				commitTx(t, tx)
			}
			mustAppend(t, a, stream.Message{Payload: []byte("last")})
			wantPayloads(t, "in order", payloads(t, everything(t, s), nil), "0 before", "0 old", "1 before", "1 old", "2 before", "2 old", "last")
			tx := begin(t, db.Pool, level)
			exec(t, tx, `SELECT 1`)
			moveStream(t, db.Pool, s)
			publish(t, tx, s, "moved")
			commitTx(t, tx)
			if all := everything(t, s); len(all) != 8 || string(all[7].Payload) != "moved" || isShared(t, db, s) {
				t.Errorf("%d messages", len(all))
			}
		})
	}
}

// TestShared_GetsItsOwn tables when it needs them.
func TestShared_GetsItsOwn(t *testing.T) {
	t.Parallel()
	db := setup(t)
	for name, need := range map[string]func(s *stream.Stream, a *stream.Appender){
		"large batch": func(_ *stream.Stream, a *stream.Appender) { mustAppend(t, a, make([]stream.Message, 300)...) },
		"large message": func(_ *stream.Stream, a *stream.Appender) {
			mustAppend(t, a, stream.Message{Payload: make([]byte, 300<<10)})
		},
	} {
		s := ensureWith(t, db.Pool, name, stream.Options{})
		a := run(t, db.Pool, s, stream.AppenderConfig{})
		mustAppend(t, a, stream.Message{Payload: []byte("first")})
		if !isShared(t, db, s) {
			t.Errorf("%s: not shared at first", name)
		}
		need(s, a)
		mustAppend(t, a, stream.Message{Payload: []byte("last")})
		all := everything(t, s)
		if isShared(t, db, s) || string(all[0].Payload) != "first" || string(all[len(all)-1].Payload) != "last" {
			t.Errorf("%s: shared, or not as before: %d messages", name, len(all))
		}
	}
}

// TestAppendTx_NotSerializable: a transaction that PostgreSQL cancels gets that error, and not
// that the stream was dropped.
func TestAppendTx_NotSerializable(t *testing.T) {
	t.Parallel()
	ensureBoth(t, func(t *testing.T, db pgtest.DB, s *stream.Stream) {
		exec(t, db.Pool, `CREATE TABLE public.x (id int PRIMARY KEY, v int); INSERT INTO public.x VALUES (1, 1), (2, 1)`)
		one, two := begin(t, db.Pool, pgx.Serializable), begin(t, db.Pool, pgx.Serializable)
		exec(t, one, `SELECT sum(v) FROM public.x`)
		exec(t, two, `SELECT sum(v) FROM public.x`)
		exec(t, one, `UPDATE public.x SET v = 0 WHERE id = 1`)
		exec(t, two, `UPDATE public.x SET v = 0 WHERE id = 2`)
		publish(t, one, s, "from one")
		commitTx(t, two)
		err := one.Commit(t.Context())
		if pg.Code(err) != "40001" {
			t.Errorf("%s: %v, want 40001", pg.Code(err), err)
		}
	})
}

// TestShared_GrantsMove: a role with grants on all tables can continue when a stream moves.
func TestShared_GrantsMove(t *testing.T) {
	t.Parallel()
	ensureBoth(t, func(t *testing.T, db pgtest.DB, s *stream.Stream) {
		role := newRole(t, db, onTables)
		pool := poolWith(t, db.URL, func(cfg *pgxpool.Config) { cfg.ConnConfig.RuntimeParams["role"] = role })
		a := run(t, pool, s, stream.AppenderConfig{})
		request := stream.RequestID{Client: "p", Sequence: 1}
		first := mustAppendAs(t, a, request, "x")
		if err := stream.RotateRequests(t.Context(), pool, s); err != nil {
			t.Errorf("rotation: %v", err)
		}
		if _, err := a.Append(t.Context(), make([]stream.Message, 300)...); err != nil {
			t.Errorf("a large batch: %v", err)
		}
		if again, err := a.AppendAs(t.Context(), request, stream.Message{}); err != nil || !again.Duplicate || again.First != first {
			t.Errorf("the request after it: %+v, %v", again, err)
		}
		if _, err := a.Append(t.Context(), stream.Message{}); err != nil {
			t.Errorf("a small one after it: %v", err)
		}
		if all := everything(t, lookUp(t, pool, "orders")); len(all) != 302 {
			t.Errorf("%d messages", len(all))
		}
	})
}

// TestShared_LongReadOfAMovedStream, by an outdated handle, returns fewer messages only before
// a gap.
func TestShared_LongReadOfAMovedStream(t *testing.T) {
	t.Parallel()
	db, s := ensure(t)
	exec(t, db.Pool, `INSERT INTO tidewire.shared_message (stream, position, keyed, payload) SELECT $1, n, true, 'x' FROM generate_series(1, 30000) AS n`, s.ID())
	if all, err := s.Read(t.Context(), 0, 20000); err != nil || len(all) != 20000 {
		t.Errorf("shared: %d, %v", len(all), err)
	}
	moveStream(t, db.Pool, s)
	if all, err := s.Read(t.Context(), 0, 20000); err != nil || len(all) != 20000 {
		t.Errorf("by who does not know: %d, %v; want 20000, for there is no gap", len(all), err)
	}
	if all, err := s.Read(t.Context(), 0, 20000); err != nil || len(all) != 20000 {
		t.Errorf("own: %d, %v", len(all), err)
	}
}

// TestShared_MoveIsLost: a standby without the move takes over, which is simulated by SQL
// here.
func TestShared_MoveIsLost(t *testing.T) {
	t.Parallel()
	db, s := ensure(t)
	a := run(t, db.Pool, s, stream.AppenderConfig{})
	mustAppend(t, a, make([]stream.Message, 3)...)
	first := mustAppendAs(t, a, stream.RequestID{Client: "p", Sequence: 1}, "once")
	mustAppend(t, a, make([]stream.Message, 300)...)
	exec(t, db.Pool, `INSERT INTO tidewire.shared_message (stream, position, keyed, payload) SELECT 1000, position, true, payload FROM tidewire.stream_1000 WHERE position <= 4;
		INSERT INTO tidewire.shared_request_0 (stream, client, sequence, position, count) SELECT 1000, client, sequence, position, count FROM tidewire.request_1000_0;
		DROP TABLE tidewire.stream_1000; DROP TABLE tidewire.request_1000_0, tidewire.request_1000_1, tidewire.request_1000_floor;
		DELETE FROM tidewire.segment; DELETE FROM tidewire.request_window; UPDATE tidewire.stream SET shared = true`)
	for range 2 {
		if _, err := a.Append(t.Context(), stream.Message{}); err != nil {
			t.Errorf("append: %v", err)
		}
		if _, err := s.Read(t.Context(), 0, 10); err != nil {
			t.Errorf("read: %v", err)
		}
		if again := mustAppendAs(t, a, stream.RequestID{Client: "p", Sequence: 1}, "twice"); again != first {
			t.Errorf("a request of before, repeated: %d, want %d", again, first)
		}
	}
}

// TestShared_TablesCannotBeMade: if a stream's own tables cannot be created, and it does
// not need them, it continues without.
func TestShared_TablesCannotBeMade(t *testing.T) {
	t.Parallel()
	db, s := ensure(t)
	a := run(t, db.Pool, s, stream.AppenderConfig{})
	mustAppend(t, a, stream.Message{})
	forbidTables(t, db)
	mustAppend(t, a, make([]stream.Message, 300)...)
	mustAppend(t, a, stream.Message{})
	if !isShared(t, db, s) {
		t.Error("the stream has moved")
	}
	if _, err := a.AppendAs(t.Context(), stream.RequestID{Client: "p", Sequence: 1}, make([]stream.Message, 300)...); err != nil {
		t.Errorf("a large request: %v", err)
	}
	always := run(t, db.Pool, s, stream.AppenderConfig{Writer: stream.WriterConfig{Method: stream.Copy}})
	if _, err := always.Append(t.Context(), stream.Message{}); err == nil || errors.Is(err, stream.ErrOutcomeUnknown) {
		t.Errorf("a batch that has nowhere to be stored: %v", err)
	}
	mustAppend(t, a, stream.Message{})
}
