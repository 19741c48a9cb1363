package queue

import (
	"errors"
	"sync"
	"testing"
)

// TestDropOne_AnotherOfItsName: a queue that Drop has found is gone before it is
// dropped. A new queue of the same name, ordinary or part of another one, is not
// dropped.
func TestDropOne_AnotherOfItsName(t *testing.T) {
	t.Parallel()
	q := testQueue(t)
	family, err := Ensure(t.Context(), q.pool, "family", Options{Priorities: 2})
	if err != nil {
		t.Fatal(err)
	}
	other := int32(1_000_000)
	for _, c := range []struct {
		name string
		of   *int32
	}{{"family/1", nil}, {"family/1", &other}, {q.Name(), &other}} {
		if err := dropOne(t.Context(), q.pool, c.name, c.of); !errors.Is(err, ErrNotFound) {
			t.Errorf("%s was dropped: %v", c.name, err)
		}
	}
	if again, err := Lookup(t.Context(), q.pool, "family"); err != nil || len(again.members) != len(family.members) {
		t.Errorf("the family has %d members, %v", len(again.members), err)
	}
	for _, name := range []string{"family", q.Name()} {
		if err := Drop(t.Context(), q.pool, name); err != nil {
			t.Error(err)
		}
	}
}

// TestEnsure_BesideDrop: Ensure succeeds even while others drop the queue.
func TestEnsure_BesideDrop(t *testing.T) {
	t.Parallel()
	pool := testQueue(t).pool
	const rounds = 30
	var working sync.WaitGroup
	for range 2 {
		working.Go(func() {
			for range rounds {
				if _, err := Ensure(t.Context(), pool, "contested", Options{}); err != nil {
					t.Error(err)
				}
			}
		})
		working.Go(func() {
			for range rounds {
				if err := Drop(t.Context(), pool, "contested"); err != nil && !errors.Is(err, ErrNotFound) {
					t.Error(err)
				}
			}
		})
	}
	working.Wait()
}
