package scenario

import (
	"context"
	"fmt"

	"github.com/tidewire/tidewire/internal/bench"
)

// cell has the parameters of one row.
type cell struct {
	op, dataset                  string
	concurrency, batch, conflict int
}

func (c cell) name() string {
	name := fmt.Sprintf("%s/%s/c%d", c.op, c.dataset, c.concurrency)
	if c.batch > 0 {
		name += fmt.Sprintf("/x%d", c.batch)
	}
	if c.conflict > 0 {
		name += fmt.Sprintf("/k%d", c.conflict)
	}
	return name
}

// cells returns the rows of an operation on a dataset.
func (cfg EventsConfig) cells(op, set string) (all []cell) {
	if op == projectionLimits {
		for _, n := range limitCallers {
			all = append(all, cell{op: op, dataset: set, concurrency: n})
		}
		return all
	}
	batches, conflicts := []int{0}, []int{0}
	if eventsOps[op].batches {
		batches = cfg.Batch
	}
	if eventsOps[op].conflict {
		conflicts = cfg.ConflictEvents
	}
	for _, n := range cfg.Concurrency {
		for _, b := range batches {
			for _, k := range conflicts {
				all = append(all, cell{op, set, n, b, k})
			}
		}
	}
	return all
}

// steps returns the rows, round by round, and the cell of each.
func (cfg EventsConfig) steps() (steps []bench.Step, cells map[string]cell) {
	cells = make(map[string]cell)
	for trial := range cfg.Repeat {
		for _, op := range cfg.Ops {
			for _, set := range cfg.Datasets {
				for _, c := range cfg.cells(op, set) {
					cells[c.name()] = c
					s := bench.Step{Row: c.name(), Trial: trial}
					if cfg.Ceiling == nil {
						s.WarmUp, s.Duration = cfg.WarmUp, cfg.Duration
					}
					steps = append(steps, s)
				}
			}
		}
	}
	return steps, cells
}

// ceilingOfCell finds the highest rate of calls that a row keeps up with.
func ceilingOfCell(ctx context.Context, sides []*eventsSide, c cell, trial int, first bool, result *bench.Result) error {
	side := sides[0]
	side.trial = trial
	return FindCeiling(ctx, *side.cfg.Ceiling, c.name(), eventsOps[c.op].describe, "", func(ctx context.Context, row string, rate float64) (map[string]float64, error) {
		side.row, side.rate = row, rate
		defer func() { side.row, side.rate = "", 0 }()
		m, err := side.measure(ctx, c, first)
		if err != nil {
			return nil, err
		}
		first = false
		m["messages_per_second"], m["sent"] = m["calls_per_second"], m["calls_per_second"]*m["seconds"]
		return m, nil
	}, result)
}
