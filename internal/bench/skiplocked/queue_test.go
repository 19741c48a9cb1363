package skiplocked_test

import (
	"slices"
	"testing"

	"github.com/tidewire/tidewire/internal/bench/skiplocked"
	"github.com/tidewire/tidewire/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// TestQueue: two claims never share a message, what is released comes again,
// what is done does not.
func TestQueue(t *testing.T) {
	t.Parallel()
	db := pgtest.Open(t)
	q := skiplocked.New(db.Pool)
	if err := q.Recreate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := q.Enqueue(t.Context(), []byte("a")); err != nil {
		t.Fatal(err)
	}
	if err := q.Enqueue(t.Context(), []byte("b"), []byte("c")); err != nil {
		t.Fatal(err)
	}
	claim := func(n int, want ...string) *skiplocked.Claim {
		t.Helper()
		c, err := q.Claim(t.Context(), n)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		if c != nil {
			for _, p := range c.Payloads {
				got = append(got, string(p))
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("claimed %q, want %q", got, want)
		}
		return c
	}
	first, second := claim(2, "a", "b"), claim(2, "c")
	claim(1)
	if err := first.Release(t.Context()); err != nil {
		t.Error(err)
	}
	if err := second.Done(t.Context()); err != nil {
		t.Error(err)
	}
	if err := claim(5, "a", "b").Done(t.Context()); err != nil {
		t.Error(err)
	}
	claim(1)
	var archived int
	if err := db.Pool.QueryRow(t.Context(), `SELECT count(*) FROM tidewire_bench.queue_archive`).Scan(&archived); err != nil || archived != 3 {
		t.Errorf("%d messages in the archive, %v, want 3", archived, err)
	}
}
