package scenario

import (
	"context"
	"errors"
	"time"

	"github.com/tidewire/tidewire/internal/bench"
)

// steps returns the rows, round by round, and the function that measures each.
func (in *ingestRun) steps() (steps []bench.Step, do map[string]func(context.Context) error) {
	do = make(map[string]func(context.Context) error)
	add := func(round int, row string, each int, measure func(context.Context) error) {
		do[row] = measure
		steps = append(steps, bench.Step{Row: row, Trial: round, Messages: int64(each * in.cfg.Clients)})
	}
	for round := range in.cfg.Repeat {
		if in.cfg.URL != "" {
			add(round, runningRow, in.perClient(""), in.running)
			continue
		}
		if !in.cfg.ClosedLoop && in.cfg.Rate == 0 && in.cfg.Ceiling == nil {
			add(round, rawCopyRow, in.perClient(""), in.rawCopy)
		}
		for _, mode := range in.cfg.Modes {
			if in.cfg.Ceiling != nil {
				add(round, mode, 0, func(ctx context.Context) error { return in.ceiling(ctx, mode) })
				continue
			}
			for _, ack := range in.acks() {
				add(round, in.rowOf(mode, ack), in.perClient(mode), func(ctx context.Context) error { return in.mode(ctx, mode, ack) })
			}
		}
	}
	return steps, do
}

// rowOf returns the name of a mode's row.
func (in *ingestRun) rowOf(mode string, ack bool) string {
	if ack && in.cfg.Ack {
		return mode + " ack"
	}
	return mode
}

// ceilingTime is how long each rate is offered.
const ceilingTime = 5 * time.Second

// ceiling finds the highest rate that a mode keeps up with, with acknowledgements.
func (in *ingestRun) ceiling(ctx context.Context, mode string) error {
	return FindCeiling(ctx, *in.cfg.Ceiling, mode, in.cfg.Describe(mode), "", func(ctx context.Context, row string, rate float64) (_ map[string]float64, err error) {
		server, err := in.cfg.Start(ctx, mode)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, server.Stop()) }()
		at := *in
		at.cfg.Rate = rate
		each := max(1, int(rate*ceilingTime.Seconds())/in.cfg.Clients)
		return at.measure(ctx, row, server.URL("/ws/ingest"), true, each, server.PID(), true)
	}, in.result)
}
