package bench

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// rounds are steps of two rows, a minute each.
var rounds = []Step{
	{Row: "a", WarmUp: time.Second, Duration: 59 * time.Second},
	{Row: "b", WarmUp: time.Second, Duration: 59 * time.Second},
	{Row: "a", Trial: 1, WarmUp: time.Second, Duration: 59 * time.Second},
}

// measure takes a minute, and records on its way.
func measure(result *Result) func(context.Context, Step) error {
	return func(ctx context.Context, s Step) error {
		result.Recording.Tick(Tick{Row: s.Row, Trial: s.Trial})
		result.Check(s.Row+": began", true, "")
		select {
		case <-time.After(s.WarmUp + s.Duration):
		case <-ctx.Done():
			return errors.New("whatever a broken connection says")
		}
		result.AddTrial(s.Row, "", map[string]float64{"seconds": 1})
		return nil
	}
}

func TestControl_SkipForgetsTheStep(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		result, c := NewResult("test", nil), new(Control)
		c.Skip() // nothing runs
		time.AfterFunc(90*time.Second, c.Skip)
		start := time.Now()
		if err := c.Run(t.Context(), result, rounds, measure(result)); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took != 150*time.Second {
			t.Errorf("took %v", took)
		}
		b := result.Row("b")
		if b == nil || b.Trials != nil || !strings.Contains(b.Note, "round 1 was skipped") {
			t.Errorf("row b %+v", b)
		}
		if len(result.Row("a").Trials) != 2 || len(result.Checks) != 2 || len(result.Recording.AllTicks()) != 2 {
			t.Errorf("%+v, %v", result, result.Recording.AllTicks())
		}
	})
}

func TestControl_QuitKeepsWhatIsFinished(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		result, c := NewResult("test", nil), new(Control)
		time.AfterFunc(90*time.Second, c.Quit)
		if err := c.Run(t.Context(), result, rounds, measure(result)); err != nil || !c.HasQuit() {
			t.Fatal(err)
		}
		result.Finish()
		last := result.Checks[len(result.Checks)-1]
		if !result.Valid || !strings.Contains(last.Detail, "1 of 2 rows") {
			t.Errorf("%+v", result.Checks)
		}
		a, b := result.Row("a"), result.Row("b")
		if len(a.Trials) != 1 || !strings.Contains(a.Note, "round 2") || b.Trials != nil || b.Note == "" {
			t.Errorf("%+v", result.Rows)
		}
		rows, checks := len(result.Rows), len(result.Checks)
		if err := c.Run(t.Context(), result, rounds[:1], measure(result)); err != nil || len(result.Rows) != rows || len(result.Checks) != checks {
			t.Errorf("ran after the end: %v", err)
		}
	})
}

func TestControl_PauseBeginsBetweenSteps(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		result, c := NewResult("test", nil), new(Control)
		var phases []string
		c.Watch(func(s Stage) { phases = append(phases, s.Row+" "+s.Phase) })
		time.AfterFunc(30*time.Second, func() { c.Pause(true) })
		time.AfterFunc(10*time.Minute, func() { c.Pause(false) })
		start := time.Now()
		if err := c.Run(t.Context(), result, rounds, measure(result)); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took != 12*time.Minute {
			t.Errorf("took %v, want the pause to begin after the first minute", took)
		}
		if want := []string{"a prepare", "b prepare", "b paused", "b prepare", "a prepare"}; !slices.Equal(phases, want) {
			t.Errorf("%v", phases)
		}
	})
}

func TestControl_ErrorsEndTheRun(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	result, c := NewResult("test", nil), new(Control)
	var stage Stage
	c.Watch(func(s Stage) { stage = s })
	err := c.Run(t.Context(), result, rounds, func(context.Context, Step) error { return broken })
	if !errors.Is(err, broken) {
		t.Error(err)
	}
	if stage.Number != 1 || stage.Of != 3 || stage.Left != 2*time.Minute || stage.Scenario != "test" {
		t.Errorf("%+v", stage)
	}
}
