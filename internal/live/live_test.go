package live

import (
	"bytes"
	"context"
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

// TestEvents: another program gets each line, step and tick.
func TestEvents(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	control := new(bench.Control)
	v := Start(t.Context(), Config{Out: &out, Events: true, Control: control})
	v.Progress("round %d", 1)
	result := bench.NewResult("queue", nil)
	control.Run(t.Context(), result, []bench.Step{{Row: "lease"}}, func(context.Context, bench.Step) error { return nil })
	v.Observe(bench.Tick{Row: "lease", Phase: bench.PhaseMeasured, At: 1, Seconds: 1, Metrics: map[string]float64{"messages_per_second": 7}})
	v.Stop()
	want := `{"line":"round 1"}
{"step":{"row":"lease","number":1,"of":1,"phase":"prepare"}}
{"tick":{"row":"lease","trial":0,"phase":"measured","at_seconds":1,"seconds":1,"metrics":{"messages_per_second":7}}}
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", &out, want)
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
