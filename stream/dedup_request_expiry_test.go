package stream_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/internal/testkit"
	"github.com/tidewire/tidewire/stream"
)

const (
	agedSQL       = `UPDATE tidewire.request_window SET since = since - $1::interval`
	agedSharedSQL = `UPDATE tidewire.shared_request_window SET since = since - $1::interval`
)

// age makes the records of the stream's clients KeepRequests old, and appends as a
// client until they are rotated.
func age(t *testing.T, db pgtest.DB, s *stream.Stream, sequence int64) {
	t.Helper()
	exec(t, db.Pool, agedSQL, stream.KeepRequests+time.Minute)
	exec(t, db.Pool, agedSharedSQL, stream.KeepRequests+time.Minute)
	tried, window := time.Now(), "request_window"
	if isShared(t, db, s) {
		tried, window = time.Time{}, "shared_request_window" // its keeper may have checked just before
	}
	a, stop := start(t, db.Pool, s, stream.AppenderConfig{})
	mustAppendAs(t, a, stream.RequestID{Client: "clock", Sequence: sequence}, "tick")
	testkit.Eventually(t, "a rotation", func() bool {
		// PostgreSQL's autovacuum may have blocked the Appender's attempt.
		if time.Since(tried) > 2*time.Second {
			tried = time.Now()
			stream.RotateRequests(t.Context(), db.Pool, s) // an error means that it still blocks
		}
		var young bool
		err := db.Pool.QueryRow(t.Context(),
			`SELECT since > clock_timestamp() - $1::interval FROM tidewire.`+window, stream.KeepRequests).Scan(&young)
		return err == nil && young
	})
	stop()
}

func TestAppendAs_Expires(t *testing.T) {
	t.Parallel()
	ensureBoth(t, func(t *testing.T, db pgtest.DB, s *stream.Stream) {
		a := run(t, db.Pool, s, stream.AppenderConfig{})
		first := mustAppendAs(t, a, stream.RequestID{Client: "p", Sequence: 5}, "once")
		age(t, db, s, 1)
		if again := mustAppendAs(t, a, stream.RequestID{Client: "p", Sequence: 5}, "once"); again != first {
			t.Errorf("repeated in the window: %d, want %d", again, first)
		}
		mustAppendAs(t, a, stream.RequestID{Client: "p", Sequence: 3}, "late")
		age(t, db, s, 2)
		for _, sequence := range []int64{5, 4} {
			if at, err := a.AppendAs(t.Context(), stream.RequestID{Client: "p", Sequence: sequence}, messages("no")...); !errors.Is(err, stream.ErrSequenceTooOld) {
				t.Errorf("sequence %d: %v, %v, want ErrSequenceTooOld", sequence, at, err)
			}
		}
		mustAppendAs(t, a, stream.RequestID{Client: "p", Sequence: 3}, "late") // its record is there still
		answers := inOneBatch(t, db.Pool, s, stream.AppenderConfig{}, ":x", "p:no", ":y", "q:z")
		if !errors.Is(answers[1].err, stream.ErrSequenceTooOld) || answers[0].err != nil || answers[2].err != nil || answers[3].err != nil {
			t.Errorf("answers %v, want the second too old", answers)
		}
		for n := range int64(3) {
			age(t, db, s, 3+n)
			if _, err := a.AppendAs(t.Context(), stream.RequestID{Client: "p", Sequence: 5}, messages("no")...); !errors.Is(err, stream.ErrSequenceTooOld) {
				t.Errorf("%d rotations on: %v, want ErrSequenceTooOld", n, err)
			}
		}
		mustAppendAs(t, a, stream.RequestID{Client: "p", Sequence: 6}, "more")
		wantStored(t, s, "once, tick, late, tick, x, y, z, tick, tick, tick, more")
	})
}

// TestAppendAs_AfterAnOutage: while PostgreSQL is unavailable, no request can be repeated.
// Requests recorded just before can be repeated afterwards, and those that waited are stored.
func TestAppendAs_AfterAnOutage(t *testing.T) {
	t.Parallel()
	ensureBoth(t, func(t *testing.T, db pgtest.DB, s *stream.Stream) {
		const pass = `SET since = since - $1::interval, seen = seen - $1::interval`
		minutes := 10
		if isShared(t, db, s) {
			minutes++
		}
		a := run(t, db.Pool, s, stream.AppenderConfig{})
		first := mustAppendAs(t, a, stream.RequestID{Client: "p", Sequence: 5}, "once")
		age(t, db, s, 1) // the record is now in the table that is emptied next
		for hour := range 3 {
			exec(t, db.Pool, `UPDATE tidewire.request_window `+pass, time.Hour)
			exec(t, db.Pool, `UPDATE tidewire.shared_request_window `+pass, time.Hour)
			if err := stream.RotateRequests(t.Context(), db.Pool, s); err != nil {
				t.Fatal(err)
			}
			if again := mustAppendAs(t, a, stream.RequestID{Client: "p", Sequence: 5}, "once"); again != first {
				t.Errorf("repeated after outage %d: %d, want %d", hour, again, first)
			}
		}
		mustAppendAs(t, a, stream.RequestID{Client: "p", Sequence: 4}, "late")
		wantStored(t, s, "once, tick, late")
		for minute := range minutes - 6 { // in which a process checks; of each outage two minutes count
			exec(t, db.Pool, `UPDATE tidewire.request_window `+pass, time.Minute)
			exec(t, db.Pool, `UPDATE tidewire.shared_request_window `+pass, time.Minute)
			if err := stream.RotateRequests(t.Context(), db.Pool, s); err != nil {
				t.Fatal(err)
			}
			_, err := a.AppendAs(t.Context(), stream.RequestID{Client: "p", Sequence: 5}, messages("once")...)
			if gone := errors.Is(err, stream.ErrSequenceTooOld); gone != (minute == minutes-7) {
				t.Errorf("%d minutes later: %v", minute+1, err)
			}
		}
	})
}

// TestAppendAs_RotationBesideReaders: a dump of the database reads all tables. It
// sees all records that existed when it began, and no one waits for it.
func TestAppendAs_RotationBesideReaders(t *testing.T) {
	t.Parallel()
	ensureBoth(t, func(t *testing.T, db pgtest.DB, s *stream.Stream) {
		recorded := `SELECT (SELECT count(*) FROM tidewire.request_1000_0) + (SELECT count(*) FROM tidewire.request_1000_1)`
		if isShared(t, db, s) {
			recorded = strings.ReplaceAll(recorded, "request_1000", "shared_request")
		}
		a := run(t, db.Pool, s, stream.AppenderConfig{})
		first := mustAppendAs(t, a, stream.RequestID{Client: "p", Sequence: 5}, "once")
		age(t, db, s, 1)
		dump := repeatableRead(t, db, recorded)
		if again := mustAppendAs(t, a, stream.RequestID{Client: "p", Sequence: 5}, "once"); again != first {
			t.Errorf("repeated: %d, want %d", again, first)
		}
		for sequence := range int64(2) {
			age(t, db, s, 2+sequence)
		}
		if _, err := a.AppendAs(t.Context(), stream.RequestID{Client: "p", Sequence: 5}, messages("no")...); !errors.Is(err, stream.ErrSequenceTooOld) {
			t.Errorf("repeated when the records went: %v, want ErrSequenceTooOld", err)
		}
		if rows := value[int](t, dump, recorded); rows != 2 {
			t.Errorf("the dump sees %d records, want 2", rows)
		}
	})
}

func TestAppendAs_DropTakesTheRecords(t *testing.T) {
	t.Parallel()
	ensureBoth(t, func(t *testing.T, db pgtest.DB, s *stream.Stream) {
		a := run(t, db.Pool, s, stream.AppenderConfig{})
		other := ensureNamed(t, db.Pool, "other", false)
		mustAppendAs(t, run(t, db.Pool, other, stream.AppenderConfig{}), stream.RequestID{Client: "p", Sequence: 1}, "kept")
		for sequence := range int64(3) { // in the floor, and in both tables
			mustAppendAs(t, a, stream.RequestID{Client: "p", Sequence: sequence}, "gone")
			if sequence < 2 {
				age(t, db, s, sequence)
			}
		}
		if err := stream.Drop(t.Context(), db.Pool, "orders"); err != nil {
			t.Fatal(err)
		}
		if _, err := a.AppendAs(t.Context(), stream.RequestID{Client: "p", Sequence: 3}, messages("x")...); !errors.Is(err, stream.ErrNotFound) {
			t.Errorf("AppendAs to a dropped stream: %v, want ErrNotFound", err)
		}
		if left := value[int](t, db.Pool, `
SELECT (SELECT count(*) FROM pg_class WHERE relname LIKE 'request\_1%') + (SELECT count(*) FROM tidewire.request_window)
	+ (SELECT count(*) FROM tidewire.shared_request_0 WHERE stream = $1) + (SELECT count(*) FROM tidewire.shared_request_1 WHERE stream = $1)
	+ (SELECT count(*) FROM tidewire.shared_request_floor WHERE stream = $1)`, s.ID()); left != 0 {
			t.Errorf("%d tables and rows are left", left)
		}
		fresh := ensureWith(t, db.Pool, "orders", stream.Options{})
		mustAppendAs(t, run(t, db.Pool, fresh, stream.AppenderConfig{}), stream.RequestID{Client: "p", Sequence: 1}, "new")
		wantStored(t, fresh, "new")
		wantStored(t, other, "kept")
	})
}
