package live

import (
	"cmp"
	"strings"
	"time"

	"github.com/tidewire/tidewire/internal/bench"
)

const (
	// ticksKept is the maximum number of ticks in the plot.
	ticksKept = 120
	// limitTicks is the number of ticks from which the limit is computed: with
	// one tick it would change each second.
	limitTicks = 5
)

// state is the known state of a run.
type state struct {
	begun    time.Time
	now      time.Time
	stage    bench.Stage
	stepAt   time.Time // start of the step
	phaseAt  time.Time
	warmedUp bool
	ticks    []bench.Tick // of the step, the last ticksKept
	errors   float64      // of the step
	messages float64      // of the step
}

// enter changes to a new stage of the run.
func (s *state) enter(stage bench.Stage) {
	old := s.stage
	s.stage = stage
	if stage.Row != old.Row || stage.Trial != old.Trial || stage.Number != old.Number || stage.Scenario != old.Scenario {
		s.ticks, s.errors, s.messages, s.warmedUp = nil, 0, 0, false
		s.stepAt, s.phaseAt = s.now, s.now
	}
	if stage.Phase != old.Phase {
		s.phaseAt = s.now
	}
	switch {
	case stage.Phase == bench.PhasePaused:
		s.stepAt = s.now // the step has not begun
	case stage.Phase == bench.PhasePrepare && old.Phase == bench.PhasePaused:
		s.stepAt = s.now
	case old.Phase == bench.PhaseWarmUp && stage.Phase == bench.PhaseMeasured:
		s.warmedUp = true
	}
}

// observe adds a Tick. If the scenario does not report its stage, the stage is
// taken from the ticks.
func (s *state) observe(t bench.Tick) {
	stage := s.stage
	if stage.Number == 0 {
		stage.Row, stage.Trial = t.Row, t.Trial
	}
	stage.Phase = t.Phase
	if stage.Phase != s.stage.Phase || stage.Row != s.stage.Row || stage.Trial != s.stage.Trial {
		s.enter(stage)
		s.phaseAt = s.now.Add(-time.Duration(t.Seconds * float64(time.Second)))
	}
	if n := len(s.ticks); n > 0 && (s.ticks[n-1].Row != t.Row || s.ticks[n-1].Trial != t.Trial) {
		s.ticks = nil // the next try of a search
	}
	if s.ticks = append(s.ticks, t); len(s.ticks) > ticksKept {
		s.ticks = s.ticks[1:]
	}
	s.errors += t.Metrics["errors"]
	s.messages += t.Metrics["messages_per_second"] * t.Seconds
}

// metrics returns the metrics of the last tick.
func (s *state) metrics() map[string]float64 {
	if len(s.ticks) == 0 {
		return nil
	}
	return s.ticks[len(s.ticks)-1].Metrics
}

// row returns the row that is measured: a search has several rows within one step.
func (s *state) row() string {
	if n := len(s.ticks); n > 0 {
		return s.ticks[n-1].Row
	}
	return s.stage.Row
}

// series returns a metric of the last ticks, 0 where it is missing.
func (s *state) series(name string, most int) (values []float64) {
	for _, t := range s.ticks[len(s.ticks)-min(max(most, 0), len(s.ticks)):] {
		values = append(values, t.Metrics[name])
	}
	return values
}

// elapsed returns how long the run has lasted, and about how long it will last in
// total; total is 0 if unknown.
func (s *state) elapsed() (gone, total time.Duration) {
	gone = s.now.Sub(s.begun)
	step := s.stage.WarmUp + s.stage.Duration
	if s.stage.Number == 0 || step == 0 {
		return gone, 0
	}
	return gone, s.stepAt.Sub(s.begun) + max(step, s.now.Sub(s.stepAt)) + s.stage.Left
}

// share returns how much of the phase is done, 0 to 1, also as text; ok is false
// if unknown.
func (s *state) share() (share float64, text string, ok bool) {
	planned := map[string]time.Duration{bench.PhaseWarmUp: s.stage.WarmUp, bench.PhaseMeasured: s.stage.Duration}[s.stage.Phase]
	switch gone := s.now.Sub(s.phaseAt); {
	case planned > 0:
		return gone.Seconds() / planned.Seconds(), clock(min(gone, planned)) + " of " + clock(planned), true
	case s.stage.Messages > 0 && s.stage.Phase == bench.PhaseMeasured:
		done := min(s.messages, float64(s.stage.Messages))
		return done / float64(s.stage.Messages), count(done) + " of " + count(float64(s.stage.Messages)), true
	}
	return 0, "", false
}

// limit names the current limit, or "" if it is unknown.
func (s *state) limit(cores int) string {
	last := s.ticks[max(0, len(s.ticks)-limitTicks):]
	if len(last) == 0 || s.stage.Phase != bench.PhaseMeasured {
		return ""
	}
	m := make(map[string]float64)
	for _, t := range last {
		for name, v := range t.Metrics {
			// A Tick has cores, but a row has seconds of CPU: for a row of one second, the two
			// numbers are equal.
			m[strings.Replace(name, "_cpu_cores", "_cpu_seconds", 1)] += v / float64(len(last))
		}
	}
	m["seconds"] = 1
	return bench.Limiter(m, cores, m["offered_messages_per_second"])
}

// durability describes the settings that a commit depends on, or "" without a database.
func (s *state) durability() string {
	pg := s.stage.PostgreSQL
	if pg == nil {
		return ""
	}
	text := "fsync " + cmp.Or(pg.Durability["fsync"], "?") + " · synchronous_commit " + cmp.Or(pg.Durability["synchronous_commit"], "?")
	if pg.SyncP50Ms > 0 {
		text += " · disk sync " + duration(pg.SyncP50Ms)
	}
	return text
}
