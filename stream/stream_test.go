package stream_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tidewire/tidewire/stream"
)

func TestEnsure_MakesOnceAndFinds(t *testing.T) {
	t.Parallel()
	db, s := ensure(t)
	if s.Name() != "orders" || !s.Keyed() || s.CreatedAt().IsZero() || s.ID() < 1000 {
		t.Errorf("stream %d %q keyed %t since %v", s.ID(), s.Name(), s.Keyed(), s.CreatedAt())
	}
	again, err := stream.Ensure(t.Context(), db.Pool, "orders", stream.Options{Keyed: true})
	if err != nil || again.ID() != s.ID() {
		t.Errorf("Ensure again: %v, %v", again, err)
	}
	found, err := stream.Lookup(t.Context(), db.Pool, "orders")
	if err != nil || found.ID() != s.ID() || !found.Keyed() {
		t.Errorf("Lookup: %v, %v", found, err)
	}
	if _, err := stream.Ensure(t.Context(), db.Pool, "orders", stream.Options{}); !errors.Is(err, stream.ErrExists) {
		t.Errorf("Ensure with other options: %v, want ErrOptions", err)
	}
	if _, err := stream.Lookup(t.Context(), db.Pool, "Orders"); !errors.Is(err, stream.ErrNotFound) {
		t.Errorf("Lookup of another name: %v, want ErrNotFound", err)
	}
}

func TestList_OrdersByName(t *testing.T) {
	t.Parallel()
	db, _ := ensure(t)
	for _, name := range []string{"zebra", "Äpfel", "a room/42"} {
		if _, err := stream.Ensure(t.Context(), db.Pool, name, stream.Options{}); err != nil {
			t.Fatal(err)
		}
	}
	names, err := stream.List(t.Context(), db.Pool)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"a room/42", "orders", "zebra", "Äpfel"}; !slices.Equal(names, want) {
		t.Errorf("List: %q, want %q", names, want)
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	db := setup(t)
	for name, ok := range map[string]bool{
		"a": true, strings.Repeat("n", 128): true, strings.Repeat("ü", 64): true, `"; DROP TABLE x; --`: true, " ": true,
		"": false, strings.Repeat("n", 129): false, strings.Repeat("ü", 65): false, "a\x00b": false, "\xff": false,
	} {
		_, err := stream.Ensure(t.Context(), db.Pool, name, stream.Options{})
		if ok && err != nil || !ok && !errors.Is(err, stream.ErrInvalid) {
			t.Errorf("Ensure(%q): %v", name, err)
		}
		_, err = stream.Lookup(t.Context(), db.Pool, name)
		if ok && err != nil || !ok && !errors.Is(err, stream.ErrInvalid) {
			t.Errorf("Lookup(%q): %v", name, err)
		}
		if err := stream.Drop(t.Context(), db.Pool, name); ok && err != nil || !ok && !errors.Is(err, stream.ErrInvalid) {
			t.Errorf("Drop(%q): %v", name, err)
		}
	}
}

func TestEnsure_RacedMakesOne(t *testing.T) {
	t.Parallel()
	db := setup(t)
	nodes := pools(t, db.URL, 3)
	var racing sync.WaitGroup
	ids := make([]int32, 12)
	for i := range ids {
		racing.Go(func() {
			s, err := stream.Ensure(t.Context(), nodes[i%len(nodes)], "raced", stream.Options{Keyed: true})
			if err != nil {
				t.Error(err)
				return
			}
			ids[i] = s.ID()
		})
	}
	racing.Wait()
	if slices.Min(ids) != slices.Max(ids) || ids[0] == 0 {
		t.Errorf("ids %v, want all the same", ids)
	}
}

// TestEnsure_RacedWithDrop creates streams in some goroutines while others drop them: each Ensure returns a complete stream, and no call fails
// because of the others.
func TestEnsure_RacedWithDrop(t *testing.T) {
	t.Parallel()
	notShort(t)
	db := setup(t)
	nodes := pools(t, db.URL, 3)
	var racing sync.WaitGroup
	for name, opts := range map[string]stream.Options{"plain": {}, "parts": {Partitions: 5}} {
		for i := range 6 {
			racing.Go(func() {
				for range 8 {
					pool := nodes[i%len(nodes)]
					if i < 3 {
						s, err := stream.Ensure(t.Context(), pool, name, opts)
						if err != nil || opts.Partitions > 0 && s.Partition(4) == nil {
							t.Error(err)
						}
					} else if err := stream.Drop(t.Context(), pool, name); err != nil && !errors.Is(err, stream.ErrNotFound) {
						t.Error(err)
					}
				}
			})
		}
	}
	racing.Wait()
}

// TestList_DroppedMeanwhile drops one of the streams that List has found, before
// List reads their partitions: List returns the others.
func TestList_DroppedMeanwhile(t *testing.T) {
	t.Parallel()
	db, _ := ensureParted(t, 2)
	for _, name := range []string{"after", "zero"} {
		ensureWith(t, db.Pool, name, stream.Options{Partitions: 1})
	}
	pool := poolBefore(t, db.URL, "WHERE parent = $1", sync.OnceFunc(func() {
		if err := stream.Drop(t.Context(), db.Pool, "parted"); err != nil {
			t.Error(err)
		}
	}))
	all, err := stream.LookupEvery(t.Context(), pool)
	if err != nil || len(all) != 2 || all[0].Name() != "after" || all[1].Name() != "zero" {
		t.Errorf("%d streams, %v, want after and zero", len(all), err)
	}
}

// TestPartitionOf_SameInSQL also pins some values: they must never change.
func TestPartitionOf_SameInSQL(t *testing.T) {
	t.Parallel()
	db, s := ensureParted(t, 7)
	var keys []string
	var want []int32
	for n := range 300 {
		key := strings.Repeat(fmt.Sprint("ключ ", n, `\'"`), n%5+1)
		keys, want = append(keys, key), append(want, int32(s.PartitionOf(key)))
	}
	if got := value[[]int32](t, db.Pool, `SELECT array_agg(tidewire.partition_of(key, 7) ORDER BY n) FROM unnest($1::text[]) WITH ORDINALITY AS k (key, n)`, keys); !slices.Equal(got, want) {
		t.Errorf("SQL says %d, Go %d", got, want)
	}
	if got := [...]int{s.PartitionOf(""), s.PartitionOf("a")}; got != [...]int{0xe3b0c442 % 7, 0xca978112 % 7} {
		t.Errorf("partitions %v", got)
	}
}
