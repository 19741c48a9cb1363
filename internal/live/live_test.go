package live

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tidewire/tidewire/internal/bench"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestPlain_ALineForEachInterval(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	v := Start(t.Context(), Config{Out: &out, Every: 5 * time.Second})
	v.Progress("round %d: %s", 1, "skip-locked")
	for n := range 12 {
		tick := recorded(n)
		tick.Seconds = 0.999
		if n == 11 {
			tick.Phase = bench.PhaseDrain
		}
		v.Observe(tick)
	}
	v.Stop()
	golden(t, "plain", out.String())
}

func TestPlain_WithoutLatencies(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	v := Start(t.Context(), Config{Out: &out, Every: time.Second})
	v.Observe(bench.Tick{Row: "a", Phase: bench.PhaseWarmUp, At: 1, Seconds: 1, Metrics: map[string]float64{"errors": 2}})
	v.Stop()
	if want := "a, round 1, warm-up: 1 s  0/s  errors 2  missing 0\n"; out.String() != want {
		t.Errorf("%q, want %q", &out, want)
	}
}

func TestQuiet_ShowsTheLogAlone(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	v := Start(t.Context(), Config{Out: &out, Every: time.Second, Quiet: true})
	v.Progress("round 1")
	v.Observe(recorded(0))
	slog.New(slog.NewTextHandler(v, nil)).Warn("away")
	v.Stop()
	if got := out.String(); !strings.Contains(got, "away") || strings.Count(got, "\n") != 1 {
		t.Errorf("%q", got)
	}
}

func TestCount(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]float64{"0": 0, "1,234,567": 1234567, "-1,000": -1000, "999": 999} {
		if got := count(want); got != name {
			t.Errorf("%g is %q", want, got)
		}
	}
}

// TestScreen_NobodyWaitsForATerminalThatHangs: updates that cannot be shown are dropped.
func TestScreen_NobodyWaitsForATerminalThatHangs(t *testing.T) {
	t.Parallel()
	s := &screen{in: make(chan any, waiting)} // nobody takes anything out
	v := &View{screen: s, plain: newPlain(&bytes.Buffer{}, time.Second)}
	for n := range 3 * waiting {
		v.Observe(recorded(n))
		v.Progress("line %d", n)
	}
	if len(s.in) != waiting || len(s.lines) != linesKept || s.dropped != 3*waiting-linesKept {
		t.Errorf("%d waiting, %d lines, %d dropped", len(s.in), len(s.lines), s.dropped)
	}
}
