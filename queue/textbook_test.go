package queue_test

import (
	"slices"
	"testing"

	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/queue"
)

// TestTextbook: two claims never share a message, what is released comes again,
// what is done does not.
func TestTextbook(t *testing.T) {
	t.Parallel()
	db := pgtest.Open(t)
	q := queue.NewTextbook(db.Pool)
	if err := q.Recreate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := q.Enqueue(t.Context(), []byte("a")); err != nil {
		t.Fatal(err)
	}
	if err := q.Enqueue(t.Context(), []byte("b"), []byte("c")); err != nil {
		t.Fatal(err)
	}
	claim := func(n int, want ...string) *queue.Claim {
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
	if archived := count(t, db.Pool, `SELECT count(*) FROM tidewire_bench.queue_archive`); archived != 3 {
		t.Errorf("%d messages in the archive, want 3", archived)
	}
}
