package schedule

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

func TestPut_Invalid(t *testing.T) {
	t.Parallel()
	db := migrated.Open(t)
	good := Spec{Name: "n", Cron: "0 3 * * *", Queue: "jobs"}
	for field, changes := range map[string][]func(*Spec){
		"name":      {func(s *Spec) { s.Name = "" }, func(s *Spec) { s.Name = strings.Repeat("n", 256) }, func(s *Spec) { s.Name = "\xff" }},
		"cron":      {func(s *Spec) { s.Cron = "often" }, func(s *Spec) { s.Cron = "" }, func(s *Spec) { s.At = time.Now() }, func(s *Spec) { s.Cron = "0 0 30 2 *" }},
		"time_zone": {func(s *Spec) { s.TimeZone = "Mars/Olympus" }},
		"at":        {func(s *Spec) { s.Cron, s.At = "", time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC) }},
		"queue":     {func(s *Spec) { s.Queue = "" }, func(s *Spec) { s.Stream = "ticks" }, func(s *Spec) { s.Queue = "nowhere" }, func(s *Spec) { s.Queue = "tidewire.x" }},
		"stream":    {func(s *Spec) { s.Queue, s.Stream = "", "nowhere" }, func(s *Spec) { s.Queue, s.Stream = "", "jobs" }, func(s *Spec) { s.Queue, s.Stream = "", "urgent/1" }},
		"priority":  {func(s *Spec) { s.Priority = 1 }, func(s *Spec) { s.Priority = -1 }, func(s *Spec) { s.Queue, s.Priority = "urgent", 3 }},
		"catch_up":  {func(s *Spec) { s.CatchUp = "some" }},
		"key":       {func(s *Spec) { s.Key = strings.Repeat("k", 1025) }, func(s *Spec) { s.Key = "\x00" }},
		"payload":   {func(s *Spec) { s.Payload = make([]byte, MaxPayload+1) }},
		"headers":   {func(s *Spec) { s.Headers = json.RawMessage(`[]`) }, func(s *Spec) { s.Headers = json.RawMessage(`null`) }, func(s *Spec) { s.Headers = json.RawMessage(`{"a":"\u0000"}`) }},
	} {
		for i, change := range changes {
			spec := good
			change(&spec)
			_, err := Put(t.Context(), db.Pool, spec)
			if invalid, is := errors.AsType[*InvalidError](err); !is || invalid.Field != field {
				t.Errorf("%s %d: %v, want an error about that field", field, i, err)
			}
		}
	}
	if all, err := List(t.Context(), db.Pool, "", 10); err != nil || len(all) != 0 {
		t.Errorf("stored %v, %v", all, err)
	}
}

func TestStore_Lifecycle(t *testing.T) {
	t.Parallel()
	db := migrated.Open(t)
	spec := Spec{Name: "n", Cron: "0 3 * * *", TimeZone: "Europe/Berlin", Queue: "urgent", Key: "k", Headers: json.RawMessage(`{"a": 1}`), Payload: []byte("p"), Priority: 2, CatchUp: All}
	s := put(t, db.Pool, spec)
	if s.Name != "n" || s.Cron != spec.Cron || s.TimeZone != spec.TimeZone || s.Queue != "urgent" || s.Key != "k" || string(s.Headers) != `{"a": 1}` ||
		string(s.Payload) != "p" || s.Priority != 2 || s.CatchUp != All || s.Paused {
		t.Errorf("stored %+v", s)
	}
	if berlin := mustTimes(t, "0 3 * * *", "Europe/Berlin"); !s.Due.Equal(berlin.Next(now(t, db.Pool))) {
		t.Errorf("due at %v", s.Due)
	}
	// The same times again, while a due time has no message: it stays due.
	was := now(t, db.Pool).UTC().Add(-time.Minute).Truncate(time.Second)
	missed(t, db.Pool, "n", was)
	spec.Payload = []byte("q")
	if s = put(t, db.Pool, spec); !s.Due.Equal(was) || string(s.Payload) != "q" {
		t.Errorf("put again: %+v, want due at %v", s, was)
	}
	spec.Cron = "0 4 * * *"
	if s = put(t, db.Pool, spec); !s.Due.After(was) {
		t.Errorf("put with other times: due at %v", s.Due)
	}
	for _, paused := range []bool{true, true, false, true} {
		spec.Paused = paused
		if s = put(t, db.Pool, spec); s.Paused != paused || s.Due.IsZero() != paused {
			t.Errorf("put with paused %v: %+v", paused, s)
		}
	}
	for _, spec := range []Spec{spec, {Name: "once", At: was.Add(time.Hour), Stream: "ticks", Paused: true}} {
		put(t, db.Pool, spec)
		put(t, db.Pool, spec)
		for _, paused := range []bool{true, true, false, false} {
			act := Resume
			if paused {
				act = Pause
			}
			if err := act(t.Context(), db.Pool, spec.Name); err != nil {
				t.Fatal(err)
			}
			if s, err := Get(t.Context(), db.Pool, spec.Name); err != nil || s.Paused != paused || s.Due.IsZero() != paused {
				t.Errorf("%+v, %v, want paused %v", s, err, paused)
			}
		}
	}
	for after, want := range map[string]int{"": 2, "n": 1, "once": 0} {
		if all, err := List(t.Context(), db.Pool, after, 10); err != nil || len(all) != want {
			t.Errorf("after %q: %v, %v, want %d", after, all, err, want)
		}
	}
	if err := Drop(t.Context(), db.Pool, "n"); err != nil {
		t.Error(err)
	}
	_, missing := Get(t.Context(), db.Pool, "n")
	for what, err := range map[string]error{
		"get": missing, "drop": Drop(t.Context(), db.Pool, "n"), "pause": Pause(t.Context(), db.Pool, "n"), "resume": Resume(t.Context(), db.Pool, "n"),
	} {
		if !errors.Is(err, ErrNotFound) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestSQL: the functions check their arguments, take part in the caller's transaction, and need to be granted.
func TestSQL(t *testing.T) {
	t.Parallel()
	db := migrated.Open(t)
	for sql, want := range map[string]string{
		`SELECT tidewire.enqueue_at('nowhere', '', now())`:                                                                       "TW003",
		`SELECT tidewire.enqueue_at(NULL, '', now())`:                                                                            "TW004",
		`SELECT tidewire.enqueue_at('jobs', NULL, now())`:                                                                        "TW004",
		`SELECT tidewire.enqueue_at('jobs', '', 'infinity')`:                                                                     "TW004",
		`SELECT tidewire.enqueue_at('jobs', '', NULL)`:                                                                           "TW004",
		`SELECT tidewire.enqueue_at('jobs', '', now(), name => '')`:                                                              "TW004",
		`SELECT tidewire.enqueue_at('jobs', '', now(), headers => '[]')`:                                                         "TW004",
		`SELECT tidewire.publish_at('jobs', '', now())`:                                                                          "TW004",
		`SELECT tidewire.publish_at('nowhere', '', now())`:                                                                       "TW003",
		`SELECT tidewire.schedule('n', '* * * * *', '')`:                                                                         "TW004",
		`SELECT tidewire.schedule('n', NULL, '', queue => 'jobs')`:                                                               "TW004",
		`SELECT tidewire.schedule(NULL, '* * * * *', '', queue => 'jobs')`:                                                       "TW004",
		`SELECT tidewire.schedule('n', '* * * * *', '', queue => 'jobs', catch_up => 'x')`:                                       "TW004",
		`SELECT tidewire.schedule('n', '* * * * *', '', queue => 'jobs', time_zone => '')`:                                       "TW004",
		`SELECT tidewire.schedule('n', '* * * * *', '', queue => 'jobs', priority => 1)`:                                         "TW004",
		`SELECT tidewire.schedule('n', '* * * * *', '', queue => 'jobs', stream => 'ticks')`:                                     "TW004",
		`SELECT tidewire.enqueue_at('jobs', '', now(), name => 'n' || g) FROM generate_series(1, 2) AS g, generate_series(1, 2)`: "23505",
	} {
		_, err := db.Pool.Exec(t.Context(), sql)
		if refused, is := errors.AsType[*pgconn.PgError](err); !is || refused.Code != want {
			t.Errorf("%s: %v, want %s", sql, err, want)
		}
	}
	exec(t, db.Pool, `CREATE ROLE schedule_app`)
	defer db.Pool.Exec(context.Background(), `DROP OWNED BY schedule_app; DROP ROLE schedule_app`)
	exec(t, db.Pool, `GRANT USAGE ON SCHEMA tidewire TO schedule_app`)
	asApp := func(sql string) error {
		return pgx.BeginFunc(t.Context(), db.Pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(t.Context(), `SET LOCAL ROLE schedule_app`); err != nil {
				return err
			}
			_, err := tx.Exec(t.Context(), sql)
			return err
		})
	}
	const sql = `SELECT tidewire.enqueue_at('jobs', 'x', now(), name => 'granted')`
	if refused, is := errors.AsType[*pgconn.PgError](asApp(sql)); !is || refused.Code != "42501" {
		t.Errorf("without the right: %v", refused)
	}
	exec(t, db.Pool, `GRANT EXECUTE ON FUNCTION tidewire.enqueue_at, tidewire.unschedule TO schedule_app`)
	if err := asApp(sql); err != nil {
		t.Error(err)
	}
	if err := asApp(`SELECT tidewire.unschedule('granted')`); err != nil {
		t.Error(err)
	}
	if _, err := Get(t.Context(), db.Pool, "granted"); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
}
