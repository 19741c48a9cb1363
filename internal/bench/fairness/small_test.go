package fairness_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/pgtest"
)

// small is a field that can be created quickly.
var small = size{streams: 2, partitions: 3, stores: 2}

func openSmall(t *testing.T) *field {
	t.Helper()
	f, err := newField(t.Context(), pgtest.Open(t).URL, 8, small)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

// TestRun_EveryVariant: each target gets its appends and has its waits; a target whose lock is
// held has none; and a flood goes to the right target.
func TestRun_EveryVariant(t *testing.T) {
	t.Parallel()
	for _, v := range variants {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			f := openSmall(t)
			const appends = 5
			flooded, err := f.run(t.Context(), v, appends, 10*time.Millisecond)
			if err != nil {
				t.Fatal(err)
			}
			if v.flood != (flooded > 0) {
				t.Errorf("%d appends of a flood", flooded)
			}
			special := f.special(v)
			if strings.HasPrefix(special.name, "events ") != v.store {
				t.Errorf("%q is flooded or held", special.name)
			}
			for _, target := range f.targets {
				want := appends
				if v.hold && target == special {
					want = 0
				}
				if len(target.waits) != want {
					t.Errorf("%s: %d waits, want %d", target.name, len(target.waits), want)
				}
			}
			stored := f.stored(t)
			for _, target := range f.targets {
				n, least, most := stored[target.name], int64(appends), int64(math.MaxInt64) // positions may have holes
				switch {
				case target == special && v.flood:
					least += flooded
				case target == special && v.hold:
					least, most = 0, 1 // what its writer waited for may be stored when the lock is free
				}
				if n < least || n > most {
					t.Errorf("%s: %d are stored, want %d to %d", target.name, n, least, most)
				}
			}
			s := summarise(f.targets, f.flooded(v))
			want := 2*3 + 2
			if v.flood || v.hold {
				want--
			}
			if len(f.targets) != 2*3+2 || len(s.targets) != want {
				t.Errorf("%d targets, of which %d are compared; want %d", len(f.targets), len(s.targets), want)
			}
			if v.flood != (s.flooded != nil) || v.flood && s.flooded.name != special.name {
				t.Errorf("flooded is %+v, want %s", s.flooded, special.name)
			}
		})
	}
}

// stored returns the heads of all targets.
func (f *field) stored(t *testing.T) map[string]int64 {
	t.Helper()
	counts := make(map[string]int64)
	for i, s := range f.streams {
		for p := range s.Partitions() {
			head, err := s.Partition(p).Head(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			counts[f.targets[i*s.Partitions()+p].name] = head
		}
	}
	for _, s := range f.stores {
		head, err := s.Head(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		counts["events "+s.Name()] = head
	}
	return counts
}
