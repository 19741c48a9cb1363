package stream_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/stream"
)

// moveStream moves a stream to its own tables, like another process.
func moveStream(t *testing.T, pool *pgxpool.Pool, s *stream.Stream) {
	t.Helper()
	exec(t, pool, `SELECT tidewire.own_stream($1)`, s.ID())
}

// isShared reports whether the messages of a stream are in the shared table, and wants
// all of them in one place.
func isShared(t *testing.T, db pgtest.DB, s *stream.Stream) (shared bool) {
	t.Helper()
	var tables bool
	var messages int
	err := db.Pool.QueryRow(t.Context(), `SELECT shared, to_regclass('tidewire.stream_' || id) IS NOT NULL,
		(SELECT count(*) FROM tidewire.shared_message WHERE stream = id) FROM tidewire.stream WHERE id = $1`, s.ID()).Scan(&shared, &tables, &messages)
	if err != nil {
		t.Fatal(err)
	}
	if shared == tables || !shared && messages > 0 {
		t.Errorf("shared is %t, the stream has tables: %t, and %d messages in the shared one", shared, tables, messages)
	}
	return shared
}

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
