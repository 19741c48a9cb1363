package scenario_test

import (
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/bench"
	"github.com/tidewire/tidewire/internal/bench/scenario"
	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/migrate"
)

// TestVerify_NoticesEveryKindOfDamage fills the table correctly, damages it in
// one way, and checks that Verify names that damage.
func TestVerify_NoticesEveryKindOfDamage(t *testing.T) {
	t.Parallel()
	const clients, messages, size = 3, 50, 20
	for name, c := range map[string]struct {
		damage string
		want   func(s scenario.Stored) bool
	}{
		"none":       {`SELECT 1`, func(s scenario.Stored) bool { return s.OK() && s.Rows == 150 && s.Reordered == 0 }},
		"lost":       {`DELETE FROM messages WHERE position = 7`, func(s scenario.Stored) bool { return !s.OK() && s.Lost == 1 && s.Duplicated == 0 }},
		"duplicated": {`INSERT INTO messages (position, payload) SELECT 1000, payload FROM messages WHERE position = 7`, func(s scenario.Stored) bool { return !s.OK() && s.Duplicated == 1 && s.Lost == 0 }},
		"foreign":    {`INSERT INTO messages (position, payload) VALUES (1000, 'hello')`, func(s scenario.Stored) bool { return !s.OK() && s.Foreign == 1 }},
		"changed":    {`UPDATE messages SET payload = set_byte(payload, 15, 0) WHERE position = 7`, func(s scenario.Stored) bool { return !s.OK() && s.Foreign == 1 && s.Lost == 1 }},
		"swapped":    {`UPDATE messages SET position = 2000 - position WHERE position IN (1, 4)`, func(s scenario.Stored) bool { return s.OK() && s.Reordered > 0 }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.Open(t)
			if _, err := migrate.Up(t.Context(), db.Pool); err != nil {
				t.Fatal(err)
			}
			if _, err := migrate.Ingest(t.Context(), db.Pool, "messages"); err != nil {
				t.Fatal(err)
			}
			if _, err := scenario.RawCopy(t.Context(), db.Pool, clients, messages, size); err != nil {
				t.Fatal(err)
			}
			if _, err := db.Pool.Exec(t.Context(), c.damage); err != nil {
				t.Fatal(err)
			}
			s, err := scenario.Verify(t.Context(), db.Pool, time.Time{}, clients, messages, size)
			if err != nil {
				t.Fatal(err)
			}
			if !c.want(s) {
				t.Errorf("%v", s)
			}
		})
	}
}

func TestVerify_LargePayloads(t *testing.T) {
	t.Parallel()
	db := pgtest.Open(t)
	if _, err := migrate.Up(t.Context(), db.Pool); err != nil {
		t.Fatal(err)
	}
	if _, err := migrate.Ingest(t.Context(), db.Pool, "messages"); err != nil {
		t.Fatal(err)
	}
	const size = 700_000 // more than the buffer that rows are parsed in
	if _, err := scenario.RawCopy(t.Context(), db.Pool, 2, 3, size); err != nil {
		t.Fatal(err)
	}
	s, err := scenario.Verify(t.Context(), db.Pool, time.Time{}, 2, 3, size)
	if err != nil || !s.OK() || s.Rows != 6 {
		t.Errorf("%v, %v", s, err)
	}
}

func TestEcho_ServerThatDies(t *testing.T) {
	t.Parallel()
	result := bench.NewResult("echo", nil)
	err := scenario.Echo(t.Context(), scenario.EchoConfig{
		Targets: []scenario.Target{{Name: "nobody", URL: "ws://127.0.0.1:1/ws"}},
		Clients: 1, Messages: 10, Payload: 8, Window: 1, Repeat: 1, Progress: func(string, ...any) {},
	}, result)
	if err == nil {
		t.Error("no error")
	}
}
