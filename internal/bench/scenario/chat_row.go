package scenario

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/tidewire/tidewire/internal/bench"
)

// chatRun has the raw results of one row.
type chatRun struct {
	name    string
	load    bench.ChatConfig
	seen    bench.ChatResult
	server  bench.Samples
	peakRSS uint64
	genCPU  float64 // seconds of the generator, in the window
}

// startTicker starts to record the progress of a load each second.
type startTicker func(sampler *bench.Sampler, count func() bench.Counters) *bench.Ticker

// do runs the load.
func (r *chatRun) do(ctx context.Context, url string, config *tls.Config, pid int, pulse startTicker, progress func(string, ...any)) (err error) {
	load := r.load
	load.URL, load.TLS, load.Gauge = url, config, &bench.Progress{}
	load.Progress = func(m bench.ChatMark) {
		progress("%s: %v, %d members, %d connections, %d sent, %d delivered, %d errors", r.name,
			m.At.Round(time.Second), m.Open, m.Connections, m.Sent, m.Deliveries, m.Errors)
	}
	sampler := bench.StartSampler(ctx, pid, 0)
	ticking := pulse(sampler, load.Gauge.Counters)
	r.seen, err = bench.RunChat(ctx, load)
	ticking.Stop()
	usage := sampler.Stop()
	r.server, r.peakRSS = sampler.Series(bench.Server), usage[bench.Server].PeakRSSBytes
	from, to := r.window()
	start := r.seen.Started
	r.genCPU = sampler.Series(bench.Generator).CPUSeconds(start.Add(from.At), start.Add(to.At))
	return err
}

// offered returns how many chats a second all members together should send, while
// all are members. If memberships begin and end, each at its planned time, the
// offered rate equals the rate that was done, or is unknown (0) if something was
// not done.
func (r *chatRun) offered(m map[string]float64) float64 {
	switch {
	case r.load.Session == 0 && r.load.Rate > 0:
		return r.load.Rate * float64(r.load.Clients)
	case m["unsent"]+m["errors"] > 0:
		return 0
	default:
		return cmp.Or(m["messages_per_second"], m["connections_per_second"])
	}
}

// append adds a later part of the same row.
func (r *chatRun) append(next *chatRun) {
	last := len(r.server)
	r.server = append(r.server, next.server...)
	if last > 0 { // CPU time continues from the last sample
		for i := range r.server[last:] {
			r.server[last+i].CPUSeconds += r.server[last-1].CPUSeconds
		}
	}
	r.peakRSS = max(r.peakRSS, next.peakRSS)
	r.genCPU += next.genCPU
	r.seen.Append(next.seen)
}

// window returns the time that the figures describe: the time in which all
// clients were members, or the whole run if memberships end.
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
		"offered": float64(seen.End.Sent + seen.Unsent), "sent": float64(seen.End.Sent), "unsent": float64(seen.Unsent),
		"deliveries": float64(seen.End.Deliveries), "deliveries_per_second": float64(deliveries) / seconds,
		"connections": float64(seen.End.Connections), "peak_connections": float64(seen.Peak),
		"connections_per_second": float64(to.Connections-from.Connections) / seconds,
		"expected":               float64(seen.Expected), "received": float64(seen.Received), "lost": float64(r.lost()),
		"duplicated": float64(seen.Checked.Duplicated), "reordered": float64(seen.Checked.Reordered),
		"errors": float64(seen.End.Errors), "generator_cpu_seconds": r.genCPU,
		"generator_late_p99_ms": seen.Late.Quantile(0.99).Seconds() * 1000,
	}
	if r.load.Session == 0 {
		m["due_deliveries_per_second"] = float64(seen.Received) / seconds
	}
	if deliveries > 0 {
		m["wire_bytes_per_delivery"] = float64(to.Bytes-from.Bytes) / float64(deliveries)
	}
	if seen.Expected > 0 {
		m["drop_rate"] = float64(r.lost()) / float64(seen.Expected)
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

// lost returns how many of the due deliveries never arrived. If duplicates hide
// losses, only the checked clients show them, and not only for the hold: these
// are counted only if the totals show no loss.
func (r *chatRun) lost() int {
	if n := r.seen.Expected - r.seen.Received; n > 0 {
		return n
	}
	return min(r.seen.Checked.Lost(), r.seen.Expected)
}

// counted adds the statistics that the server printed at its end.
func (r *chatRun) counted(server *ServerProcess, target Target, m map[string]float64, result *bench.Result) {
	if server == nil {
		return
	}
	accepted, ok := server.Statistic("Total messages")
	if ok {
		m["accepted"] = accepted
	}
	if dropped, ok := server.Statistic("Messages dropped"); ok {
		m["rate_limited"] = dropped
	}
	if target.Own {
		result.Check(r.name+": the server counted what was sent", ok && accepted == float64(r.seen.End.Sent), "sent %d, counted %.0f", r.seen.End.Sent, accepted)
	}
}

// check records whether every delivery is accounted for. Losses of another
// server are results; losses of Tidewire make the run invalid.
func (r *chatRun) check(target Target, result *bench.Result) {
	seen := r.seen
	if !target.Own {
		result.Check(r.name+": every delivery that was due is accounted for", seen.Received+r.lost() >= seen.Expected,
			"due %d, received %d, lost %d; %d chats not taken by the server, %d errors%s", seen.Expected, seen.Received, r.lost(), seen.Unsent, seen.End.Errors, r.errors())
		return
	}
	result.Check(r.name+": every chat was sent when it was due", seen.Unsent == 0,
		"%d of %d not sent: the server did not read; late p99 %v", seen.Unsent, seen.End.Sent, seen.Late.Quantile(0.99))
	result.Check(r.name+": no errors", seen.End.Errors == 0, "%d of %d connections%s", seen.End.Errors, seen.End.Connections, r.errors())
	result.Check(r.name+": every chat reached every other member", seen.Lost() == 0 && seen.Missed == 0,
		"expected %d, received %d, checked one by one %d, of which %d lost; %d left out by the server",
		seen.Expected, seen.Received, seen.Checked.Expected, seen.Checked.Lost(), seen.Missed)
	result.Check(r.name+": once, and in its sender's order", seen.Checked.Duplicated == 0 && seen.Checked.Reordered == 0,
		"%d duplicated, %d reordered", seen.Checked.Duplicated, seen.Checked.Reordered)
}

// errors lists the kinds of errors, with an example of each.
func (r *chatRun) errors() (list string) {
	for _, kind := range slices.Sorted(maps.Keys(r.seen.FirstError)) {
		list += fmt.Sprintf("; %d x %s: %s", r.seen.Errors[kind], kind, r.seen.FirstError[kind])
	}
	return list
}
