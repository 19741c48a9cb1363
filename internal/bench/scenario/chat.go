package scenario

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/tidewire/tidewire/internal/bench"
)

// ChatConfig configures Chat.
type ChatConfig struct {
	Targets  []Target
	Scenario string         // one of Chats
	Soak     time.Duration  // 0: the scenario's own length
	Scale    float64        // multiplies every duration
	Share    float64        // multiplies the number of clients
	Compress bool           // the clients offer compression, and ask for batches
	Custom   *ChatLoad      // replaces the scenario's loads
	Ceiling  *Ceiling       // search for the highest rate of chats, with clients like Custom's; nil: no search
	Repeat   int            // rounds; targets are interleaved over them
	Control  *bench.Control // steers the run; nil: nobody does
	Progress func(format string, args ...any)
}

// ChatLoad is a user-defined load: all clients connect, send chats, and leave.
type ChatLoad struct {
	Clients int
	Rate    float64 // chats/s of each client
	Payload int     // bytes of a chat
	Hold    time.Duration
}

// Chat runs one of the chat scenarios against each target, with a fresh server
// for each row, and verifies the deliveries. If a server cannot be run, or
// fails, its row gets a note, and the others still run; if it is Tidewire, the
// result is not valid. It is an error if nothing could be measured.
func Chat(ctx context.Context, cfg ChatConfig, result *bench.Result) error {
	var failures []error
	steps, targets := targetSteps(cfg.Targets, cfg.Repeat, 0)
	err := cfg.Control.Run(ctx, result, steps, func(ctx context.Context, s bench.Step) error {
		err := cfg.target(ctx, targets[s.Row], s.Trial, result)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			failures = append(failures, fmt.Errorf("%s: %w", s.Row, err))
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, row := range result.Rows {
		if len(row.Metrics) > 0 {
			return nil
		}
	}
	return errors.Join(failures...)
}

// target runs all rows of a target.
func (cfg ChatConfig) target(ctx context.Context, target Target, round int, result *bench.Result) (failed error) {
	if target.Missing != "" {
		result.AddNote(target.Name, target.Description, target.Missing)
		result.Row(target.Name).Labels = target.Labels
		if target.Own {
			result.Check(target.Name+": ran", false, "%s", target.Missing)
		}
		return errors.New(target.Missing)
	}
	if cfg.Ceiling != nil {
		return cfg.ceiling(ctx, target, result)
	}
	for _, loads := range cfg.plan() {
		name := strings.TrimSpace(target.Name + " " + loads[0].name)
		cfg.Progress("round %d: %s %s", round+1, cfg.Scenario, name)
		err := cfg.row(ctx, target, name, loads, round, result)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if target.Own {
			result.Check(name+": ran to its end", err == nil, "%v", err)
		}
		if err != nil {
			cfg.Progress("%s: %v", name, err)
			result.AddNote(name, target.Description, "failed: "+strings.Join(strings.Fields(err.Error()), " "))
			failed = errors.Join(failed, err)
		}
		result.Row(name).Labels = target.Labels
	}
	return failed
}

// plan returns the loads of each row.
func (cfg ChatConfig) plan() (rows [][]chatStep) {
	if c := cfg.Custom; c != nil {
		return [][]chatStep{scaled([]chatStep{{"", bench.ChatConfig{
			Clients: c.Clients, Rate: c.Rate, Payload: c.Payload, Hold: c.Hold, Checked: max(20, c.Clients/10),
		}}}, cfg.Scale, cfg.Share)}
	}
	for i, step := range scaled(chatPlan(cfg.Scenario, cfg.Soak), cfg.Scale, cfg.Share) {
		step.load.Payload = chatPayload
		if i == 0 || step.name != rows[len(rows)-1][0].name {
			rows = append(rows, nil)
		}
		rows[len(rows)-1] = append(rows[len(rows)-1], step)
	}
	return rows
}

// ceiling finds how many chats a second a target keeps up with. It raises the number
// of clients, each with Custom's rate: the number of a room's members makes the load
// hard, and servers limit the rate of one member. Losses at rates that are not kept
// are expected, and do not make the result invalid.
func (cfg ChatConfig) ceiling(ctx context.Context, target Target, result *bench.Result) error {
	return FindCeiling(ctx, *cfg.Ceiling, target.Name, target.Description, "", func(ctx context.Context, row string, rate float64) (map[string]float64, error) {
		load := *cfg.Custom
		load.Clients = max(2, int(math.Round(rate/load.Rate)))
		cfg := cfg
		cfg.Custom, cfg.Share = &load, 1 // the rate determines the number of clients
		run, server, err := cfg.measure(ctx, target, row, cfg.plan()[0], 0, &result.Recording)
		if err != nil {
			return nil, err
		}
		m := run.metrics()
		other := target
		other.Own = false
		run.counted(server, other, m, result)
		run.check(other, result)
		return m, nil
	}, result)
}

// row makes the loads of one row on one server, and adds the outcome to the result.
func (cfg ChatConfig) row(ctx context.Context, target Target, name string, loads []chatStep, round int, result *bench.Result) error {
	run, server, err := cfg.measure(ctx, target, name, loads, round, &result.Recording)
	if run == nil {
		return err
	}
	m := run.metrics()
	if target.BinaryBytes > 0 {
		m["binary_bytes"] = float64(target.BinaryBytes)
	}
	var verdicts []bench.Check
	if cfg.Soak > 0 {
		verdicts = run.verdicts(m, err)
	}
	run.counted(server, target, m, result)
	run.check(target, result)
	if run.load.Rate > 0 {
		checkMeasured(result, name, float64(run.seen.Expected), "deliveries were due")
	}
	addTrial(result, name, target.Description, m, run.offered(m))
	row := result.Row(name)
	row.Verdicts = append(row.Verdicts, verdicts...)
	return err
}

// measure makes the loads of one row on one server, and records the progress. The
// run is nil if not even the first load completed.
func (cfg ChatConfig) measure(
	ctx context.Context, target Target, name string, loads []chatStep, trial int, recording *bench.Recording,
) (run *chatRun, server *ServerProcess, err error) {
	began := time.Now()
	pulse := func(sampler *bench.Sampler, count func() bench.Counters) *bench.Ticker {
		return recording.ResumePulse(ctx, began, name, trial, sampler, count)
	}
	server, err = target.use(ctx, func(url string, pid int) error {
		for i, step := range loads {
			if len(loads) > 1 {
				cfg.Progress("%s: part %d of %d", name, i+1, len(loads))
			}
			step.load.Compress = cfg.Compress
			part := &chatRun{name: name, load: step.load}
			if err := part.do(ctx, url, target.TLS, pid, pulse, cfg.Progress); err != nil {
				return err
			}
			if run == nil {
				run = part
			} else {
				run.append(part)
			}
		}
		return nil
	})
	if run != nil {
		recording.Latencies(name, trial, "", run.seen.Latency)
		recording.Latencies(name, trial, "connect_", run.seen.Connect)
	}
	return run, server, err
}
