package fairness_test

import (
	"errors"
	"maps"
	"math"
	"slices"
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

// TestRun_Fails if an append does.
func TestRun_Fails(t *testing.T) {
	t.Parallel()
	f := openSmall(t)
	if err := f.stores[0].Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := f.run(t.Context(), variants[0], 2, time.Millisecond); err == nil || !strings.Contains(err.Error(), f.stores[0].Name()) {
		t.Errorf("%v, want an error of the store that is closed", err)
	}
	if _, err := f.run(t.Context(), variants[2], 2, time.Millisecond); err == nil || !strings.Contains(err.Error(), "flood of") {
		t.Errorf("%v, want an error of the flood", err)
	}
}

// TestSummarise: a target without waits does not count.
func TestSummarise(t *testing.T) {
	t.Parallel()
	ms := func(all ...int) (d []time.Duration) {
		for _, n := range all {
			d = append(d, time.Duration(n)*time.Millisecond)
		}
		return d
	}
	targets := []*target{
		{name: "a", waits: ms(1, 2, 3), late: ms(1)}, {name: "held"}, {name: "b", waits: ms(90, 8, 6), late: ms(7)}, {name: "c", waits: ms(4, 4, 4)},
	}
	s := summarise(targets, nil)
	want := map[string]float64{
		"median-ms": 4, "slowest-median-ms": 8, "slowest-ms": 90, "slowest-median/median": 2, "slowest/median": 22.5, "late-p99-ms": 7,
	}
	if got := s.metrics(); !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	var text strings.Builder
	if err := s.write(&text, "plain"); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(text.String()), "\n")
	if !slices.Equal(lines, []string{"plain\tb\tfalse\t3\t8.000\t90.000", "plain\tc\tfalse\t3\t4.000\t4.000", "plain\ta\tfalse\t3\t2.000\t3.000"}) {
		t.Errorf("%q", lines)
	}
	if got := summarise(nil, nil).metrics(); got["slowest-median/median"] != 0 {
		t.Errorf("of nothing: %v", got)
	}
	if err := s.write(broken{}, "plain"); !errors.Is(err, errFull) {
		t.Errorf("%v, want %v", err, errFull)
	}
}

// TestSummarise_Flooded: the other targets are compared with each other, however long the
// flooded one waits.
func TestSummarise_Flooded(t *testing.T) {
	t.Parallel()
	wait := func(d time.Duration) []time.Duration { return []time.Duration{d * time.Millisecond} }
	flooded := &target{name: "flooded", waits: wait(500)}
	s := summarise([]*target{{name: "a", waits: wait(2)}, flooded, {name: "b", waits: wait(4)}, {name: "c", waits: wait(6)}}, flooded)
	want := map[string]float64{
		"median-ms": 4, "slowest-median-ms": 6, "slowest-ms": 6, "slowest-median/median": 1.5, "slowest/median": 1.5, "late-p99-ms": 0,
	}
	if got := s.metrics(); !maps.Equal(got, want) {
		t.Errorf("of the others %v, want %v", got, want)
	}
	if got := s.flooded.metrics(); !maps.Equal(got, map[string]float64{"median-ms": 500, "slowest-ms": 500}) {
		t.Errorf("of the flooded one %v", got)
	}
	var text strings.Builder
	if err := s.write(&text, "x"); err != nil {
		t.Fatal(err)
	}
	if lines := strings.Split(text.String(), "\n"); lines[0] != "x\tflooded\ttrue\t1\t500.000\t500.000" || len(lines) != 5 {
		t.Errorf("%q", lines)
	}
}

var errFull = errors.New("full")

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errFull }
