package scenario

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/tidewire/tidewire/bench"
)

// ChatConfig is the workload of Chat.
type ChatConfig struct {
	Targets  []Target
	Scenario string        // one of Chats
	Soak     time.Duration // 0: the scenario's own length
	Scale    float64       // of every duration; 1 is the scenario as it is
	Share    float64       // of the clients; 1 is the scenario as it is
	Custom   *ChatLoad     // replaces the scenario's loads
	Repeat   int           // rounds; targets are interleaved over them
	Progress func(format string, args ...any)
}

// ChatLoad is a load of one's own: all clients connect, speak, and leave.
type ChatLoad struct {
	Clients int
	Rate    float64 // chats/s of each
	Payload int     // bytes of a chat
	Hold    time.Duration
}

// Chat runs one of the chat scenarios against each target, each time freshly
// started, and verifies what is delivered.
func Chat(ctx context.Context, cfg ChatConfig, result *bench.Result) error {
	for round := range cfg.Repeat {
		for _, target := range cfg.Targets {
			if err := chatTarget(ctx, cfg, target, round, result); err != nil {
				return fmt.Errorf("%s: %w", target.Name, err)
			}
		}
	}
	return nil
}

func (cfg ChatConfig) plan() []chatStep {
	if c := cfg.Custom; c != nil {
		return []chatStep{{"", bench.ChatConfig{
			Clients: c.Clients, Rate: c.Rate, Payload: c.Payload, Hold: c.Hold, Checked: max(20, c.Clients/10),
		}}}
	}
	steps := scaled(chatPlan(cfg.Scenario, cfg.Soak), cfg.Scale, cfg.Share)
	for i := range steps {
		steps[i].load.Payload = chatPayload
	}
	return steps
}

// chatRun is what one row was made of.
type chatRun struct {
	name    string
	load    bench.ChatConfig
	seen    bench.ChatResult
	server  bench.Samples
	peakRSS uint64
	genCPU  float64 // seconds of the generator, in the window
}

func chatTarget(ctx context.Context, cfg ChatConfig, target Target, round int, result *bench.Result) error {
	var runs []*chatRun
	server, err := target.use(ctx, func(url string, pid int) error {
		for i, step := range cfg.plan() {
			name := strings.TrimSpace(target.Name + " " + step.name)
			cfg.Progress("round %d: %s %s, part %d of %d", round+1, cfg.Scenario, name, i+1, len(cfg.plan()))
			run := &chatRun{name: name, load: step.load}
			if err := run.do(ctx, url, pid, cfg.Progress); err != nil {
				return err
			}
			if last := len(runs) - 1; last >= 0 && runs[last].name == name {
				runs[last].append(run)
			} else {
				runs = append(runs, run)
			}
		}
		return nil
	})
	if err != nil && (target.Own || len(runs) == 0 || ctx.Err() != nil) {
		return err
	}
	sent := 0
	for _, run := range runs {
		m := run.metrics()
		if size := target.binaryBytes(); size > 0 {
			m["binary_bytes"] = size
		}
		var verdicts []bench.Check
		if cfg.Soak > 0 {
			verdicts = run.verdicts(m, err)
		}
		result.AddTrial(run.name, target.Description, m)
		row := result.Row(run.name)
		row.Verdicts = append(row.Verdicts, verdicts...)
		run.check(target, result)
		sent += run.seen.End.Sent
	}
	if server == nil {
		return nil
	}
	if said, ok := server.Statistic("Total messages"); ok && target.Own {
		result.Check(target.Name+": the server counted what was sent", said == float64(sent), "sent %d, counted %.0f", sent, said)
	}
	return nil
}

// do makes the load.
func (r *chatRun) do(ctx context.Context, url string, pid int, progress func(string, ...any)) (err error) {
	load := r.load
	load.URL = url
	load.Progress = func(m bench.ChatMark) {
		progress("%s: %v, %d members, %d connections, %d sent, %d delivered, %d errors", r.name,
			m.At.Round(time.Second), m.Open, m.Connections, m.Sent, m.Deliveries, m.Errors)
	}
	sampler := bench.StartSampler(ctx, pid, 0)
	r.seen, err = bench.RunChat(ctx, load)
	usage := sampler.Stop()
	r.server, r.peakRSS = sampler.Series(bench.Server), usage[bench.Server].PeakRSSBytes
	from, to := r.window()
	start := r.seen.Started
	r.genCPU = sampler.Series(bench.Generator).CPUSeconds(start.Add(from.At), start.Add(to.At))
	return err
}

// append joins a later part of the same row.
func (r *chatRun) append(next *chatRun) {
	last := len(r.server)
	r.server = append(r.server, next.server...)
	if last > 0 { // CPU time goes on where it was
		for i := range r.server[last:] {
			r.server[last+i].CPUSeconds += r.server[last-1].CPUSeconds
		}
	}
	r.peakRSS = max(r.peakRSS, next.peakRSS)
	r.genCPU += next.genCPU
	r.seen.Append(next.seen)
}

// window is the time that figures are about: that in which all were members,
// or the whole run where memberships end.
func (r *chatRun) window() (from, to bench.ChatMark) {
	if r.load.Session > 0 {
		return bench.ChatMark{}, r.seen.End
	}
	return r.seen.HoldStart, r.seen.HoldEnd
}

func (r *chatRun) metrics() map[string]float64 {
	from, to := r.window()
	seen := r.seen
	seconds := (to.At - from.At).Seconds()
	deliveries := to.Deliveries - from.Deliveries
	m := map[string]float64{
		"seconds": seconds, "messages_per_second": float64(to.Sent-from.Sent) / seconds,
		"sent": float64(seen.End.Sent), "deliveries": float64(seen.End.Deliveries), "deliveries_per_second": float64(deliveries) / seconds,
		"connections": float64(seen.End.Connections), "peak_connections": float64(seen.Peak),
		"connections_per_second": float64(to.Connections-from.Connections) / seconds,
		"expected":               float64(seen.Expected), "received": float64(seen.Received), "lost": float64(seen.Lost()),
		"duplicated": float64(seen.Checked.Duplicated), "reordered": float64(seen.Checked.Reordered),
		"errors": float64(seen.End.Errors), "generator_cpu_seconds": r.genCPU,
		"generator_late_p99_ms": seen.Late.Quantile(0.99).Seconds() * 1000,
	}
	if seen.Expected > 0 {
		m["drop_rate"] = float64(seen.Lost()) / float64(seen.Expected)
	}
	seen.Latency.Metrics(m, "")
	seen.Connect.Metrics(m, "connect_")
	if r.peakRSS > 0 {
		cpu := r.server.CPUSeconds(seen.Started.Add(from.At), seen.Started.Add(to.At))
		m["server_cpu_seconds"], m["server_cpu_cores"] = cpu, cpu/seconds
		m["server_peak_rss_bytes"] = float64(r.peakRSS)
		if deliveries > 0 {
			m["server_cpu_seconds_per_million_deliveries"] = cpu / float64(deliveries) * 1e6
		}
	}
	return m
}

// check records whether everything is accounted for. Another server's losses
// are results; Tidewire's make the run invalid.
func (r *chatRun) check(target Target, result *bench.Result) {
	seen := r.seen
	result.Check(r.name+": every chat was sent when it was due", seen.Unsent == 0,
		"%d of %d not sent: the server did not read; late p99 %v", seen.Unsent, seen.End.Sent, seen.Late.Quantile(0.99))
	if !target.Own {
		return
	}
	var kinds []string
	for _, kind := range slices.Sorted(maps.Keys(seen.FirstError)) {
		kinds = append(kinds, fmt.Sprintf("%d x %s: %s", seen.Errors[kind], kind, seen.FirstError[kind]))
	}
	result.Check(r.name+": no errors", seen.End.Errors == 0, "%d of %d connections; %s", seen.End.Errors, seen.End.Connections, strings.Join(kinds, "; "))
	result.Check(r.name+": every chat reached every other member", seen.Lost() == 0 && seen.Missed == 0,
		"expected %d, received %d, checked one by one %d, of which %d lost; %d left out by the server",
		seen.Expected, seen.Received, seen.Checked.Expected, seen.Checked.Lost(), seen.Missed)
	result.Check(r.name+": once, and in its sender's order", seen.Checked.Duplicated == 0 && seen.Checked.Reordered == 0,
		"%d duplicated, %d reordered", seen.Checked.Duplicated, seen.Checked.Reordered)
}

// binaryBytes is the size of the target's program, 0 if that is not known.
func (t Target) binaryBytes() float64 {
	info, err := os.Stat(t.Program)
	if err != nil {
		return 0
	}
	return float64(info.Size())
}
