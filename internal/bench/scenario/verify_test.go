package scenario_test

import (
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/bench/scenario"
	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/migrate"
)

// TestVerify_NoticesEveryKindOfDamage fills the table correctly, damages it in
// one way, and checks that Verify names that damage.
func TestVerify_NoticesEveryKindOfDamage(t *testing.T) {
	t.Parallel()
	const clients, messages, size = 3, 50, 20
	db := messagesTable(t)
	for _, c := range []struct {
		name, damage string
		want         scenario.Stored
	}{
		{"none", `SELECT 1`, scenario.Stored{Rows: 150}},
		{"lost", `DELETE FROM messages WHERE position = 7`, scenario.Stored{Rows: 149, Lost: 1}},
		{"duplicated", `INSERT INTO messages (position, payload) SELECT 1000, payload FROM messages WHERE position = 7`, scenario.Stored{Rows: 151, Duplicated: 1}},
		{"foreign", `INSERT INTO messages (position, payload) VALUES (1000, 'hello')`, scenario.Stored{Rows: 151, Foreign: 1}},
		{"changed", `UPDATE messages SET payload = set_byte(payload, 15, 0) WHERE position = 7`, scenario.Stored{Rows: 150, Foreign: 1, Lost: 1}},
		{"swapped", `UPDATE messages SET position = 2000 - position WHERE position IN (1, 4)`, scenario.Stored{Rows: 150, Reordered: 1}},
	} {
		if _, err := scenario.RawCopy(t.Context(), db.Pool, clients, messages, size); err != nil {
			t.Fatal(err)
		}
		if _, err := db.Pool.Exec(t.Context(), c.damage); err != nil {
			t.Fatal(err)
		}
		got, err := scenario.Verify(t.Context(), db.Pool, time.Time{}, clients, messages, size)
		if err != nil {
			t.Fatal(err)
		}
		if ok := c.want.Lost+c.want.Duplicated+c.want.Foreign == 0; got.OK() != ok || got.Rows != c.want.Rows || got.Lost != c.want.Lost ||
			got.Duplicated != c.want.Duplicated || got.Foreign != c.want.Foreign || got.Reordered > 0 != (c.want.Reordered > 0) {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
		if _, err := db.Pool.Exec(t.Context(), `TRUNCATE messages`); err != nil {
			t.Fatal(err)
		}
	}
}

// messagesTable is a database with an empty table of messages.
func messagesTable(t *testing.T) pgtest.DB {
	t.Helper()
	db := pgtest.Open(t)
	if _, err := migrate.Up(t.Context(), db.Pool); err != nil {
		t.Fatal(err)
	}
	if _, err := migrate.Ingest(t.Context(), db.Pool, "messages"); err != nil {
		t.Fatal(err)
	}
	return db
}
