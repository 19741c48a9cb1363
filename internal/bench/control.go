package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Why a step ended before its time.
var (
	ErrSkipped = errors.New("the step was skipped")
	ErrQuit    = errors.New("the run was ended early")
)

// PhasePaused and PhasePrepare are phases of a Stage; the others are those of a
// Tick.
const (
	PhasePaused  = "paused"
	PhasePrepare = "prepare"
)

// Step is one trial of one row.
type Step struct {
	Row   string
	Trial int // from 0
	// WarmUp and Duration are the intended times, or Messages is the number of
	// messages. All are zero if nothing is known.
	WarmUp, Duration time.Duration
	Messages         int64
}

// Stage describes where a run is.
type Stage struct {
	Scenario string
	Step
	Number, Of int           // the step is number 1 to Of
	Left       time.Duration // intended time of the remaining steps
	Phase      string
	PostgreSQL *PostgreSQL // nil: no database, or not described yet
}

// Control lets a viewer steer a run. It never delays what is measured: a pause
// begins between two steps, and a step that ends early leaves no result. Safe
// for concurrent use. The zero value is ready, and a nil Control steers nothing.
type Control struct {
	mu     sync.Mutex // guards the fields below
	paused bool
	quit   bool
	change chan struct{}           // closed when paused or quit changes; nil: nobody waits
	end    context.CancelCauseFunc // cancels the running step, or nil
	stage  Stage
	watch  func(Stage)
}

// Watch sets f to be called whenever the stage changes, by the goroutine of the
// run: f must not block.
func (c *Control) Watch(f func(Stage)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.watch = f
}

// Pause stops the run before its next step, or lets it continue.
func (c *Control) Pause(on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.paused = on
	c.changed()
}

// Skip ends the running step. Its measurements are discarded.
func (c *Control) Skip() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.end != nil {
		c.end(ErrSkipped)
	}
}

// Quit ends the running step and the run. Results of finished steps are kept.
func (c *Control) Quit() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.quit = true
	c.changed()
	if c.end != nil {
		c.end(ErrQuit)
	}
}

// HasQuit reports whether Quit was called.
func (c *Control) HasQuit() bool {
	if c == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.quit
}

// changed wakes the waiting goroutines. The caller holds the lock.
func (c *Control) changed() {
	if c.change != nil {
		close(c.change)
		c.change = nil
	}
}

// Phase sets the phase of the running step.
func (c *Control) Phase(phase string) {
	if c != nil {
		c.tell(func(s *Stage) { s.Phase = phase })
	}
}

// tell changes the stage and calls the watcher without the lock, since the
// watcher may call methods of Control.
func (c *Control) tell(change func(*Stage)) {
	c.mu.Lock()
	change(&c.stage)
	stage, watch := c.stage, c.watch
	c.mu.Unlock()
	if watch != nil {
		watch(stage)
	}
}

// Run runs the steps in turn. For a skipped step, the result keeps only a note.
// After Quit, the result's checks say which steps were not run, and Run returns
// nil. Any other error ends the run.
func (c *Control) Run(ctx context.Context, result *Result, steps []Step, do func(context.Context, Step) error) error {
	if c == nil {
		c = new(Control)
	}
	for i, s := range steps {
		c.tell(func(stage *Stage) {
			*stage = Stage{
				Scenario: result.Scenario, Step: s, Number: i + 1, Of: len(steps), Left: planned(steps[i+1:]),
				Phase: PhasePrepare, PostgreSQL: result.Environment.PostgreSQL,
			}
		})
		err := c.step(ctx, result, s, do)
		switch {
		case err == nil:
		case errors.Is(err, ErrSkipped):
			result.AddNote(s.Row, "", fmt.Sprintf("round %d was skipped", s.Trial+1))
		case errors.Is(err, ErrQuit):
			result.cutShort(steps[i:])
			return nil
		default:
			return err
		}
	}
	return nil
}

// planned returns the intended time of the steps.
func planned(steps []Step) (d time.Duration) {
	for _, s := range steps {
		d += s.WarmUp + s.Duration
	}
	return d
}

// step runs one step, and discards its measurements if it was ended from
// outside. A step that has finished by then counts.
func (c *Control) step(ctx context.Context, result *Result, s Step, do func(context.Context, Step) error) error {
	if err := c.wait(ctx); err != nil {
		return err
	}
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	if !c.begin(end) {
		return ErrQuit
	}
	defer c.begin(nil)
	before := result.mark()
	err := do(ctx, s)
	if err == nil {
		return nil
	}
	if cause := context.Cause(ctx); errors.Is(cause, ErrSkipped) || errors.Is(cause, ErrQuit) {
		result.rewind(before)
		return cause
	}
	return err
}

// begin sets the function that ends the step. It reports whether the step may run.
func (c *Control) begin(end context.CancelCauseFunc) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.end = end
	return !c.quit
}

// wait returns when the run may continue.
func (c *Control) wait(ctx context.Context) error {
	for told := false; ; {
		c.mu.Lock()
		paused, quit := c.paused, c.quit
		if c.change == nil {
			c.change = make(chan struct{})
		}
		change := c.change
		c.mu.Unlock()
		switch {
		case quit:
			return ErrQuit
		case !paused:
			if told {
				c.Phase(PhasePrepare)
			}
			return nil
		case !told:
			c.Phase(PhasePaused)
			told = true
		}
		select {
		case <-change:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// mark is the size of a Result at one moment.
type mark struct {
	checks           []Check
	rows             []Row
	ticks, latencies int
}

func (r *Result) mark() mark {
	ticks, latencies := r.Recording.size()
	return mark{slices.Clone(r.Checks), slices.Clone(r.Rows), ticks, latencies}
}

// rewind discards everything after the mark.
func (r *Result) rewind(m mark) {
	r.Checks, r.Rows = m.checks, m.rows
	r.Recording.truncate(m.ticks, m.latencies)
}

func (r *Recording) size() (ticks, latencies int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.ticks), len(r.latencies)
}

func (r *Recording) truncate(ticks, latencies int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ticks, r.latencies = r.ticks[:ticks:ticks], r.latencies[:latencies:latencies]
}

// cutShort notes the steps that were not run. The finished steps stay valid; if
// there are none, there is no result.
func (r *Result) cutShort(steps []Step) {
	for _, s := range steps {
		r.AddNote(s.Row, "", fmt.Sprintf("round %d was not run to its end", s.Trial+1))
	}
	const name = "ended early: what was finished stands"
	if slices.ContainsFunc(r.Checks, func(c Check) bool { return c.Name == name }) {
		return // by the steps before
	}
	finished := 0
	for _, row := range r.Rows {
		if row.Metrics != nil {
			finished++
		}
	}
	r.Check(name, finished > 0, "%d of %d rows have figures", finished, len(r.Rows))
}
