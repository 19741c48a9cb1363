package queue_test

import (
	"testing"

	"github.com/tidewire/tidewire/queue"
)

// TestHistory_NothingBetween: two histories with nothing between them, and what a queue is said to hold.
func TestHistory_NothingBetween(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string]queue.Options{"plain": {}, "priorities": {Priorities: 2}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, q := setup(t, opts)
			n, _ := start(t, q, queue.NodeConfig{})
			enqueue(t, n, numbered(20)...)
			for range 2 {
				if _, err := db.Pool.Exec(t.Context(), `SELECT tidewire.begin_history()`); err != nil {
					t.Fatal(err)
				}
			}
			enqueue(t, n, numbered(5)...)
			if s, err := q.Stats(t.Context()); err != nil || s.Ready != 25 {
				t.Errorf("%+v, %v: want 25 ready", s, err)
			}
		})
	}
}
