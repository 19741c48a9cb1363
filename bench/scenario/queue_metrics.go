package scenario

import (
	"fmt"
	"time"

	"github.com/tidewire/tidewire/bench"
)

func (r *queueRun) metrics(took time.Duration, usage map[bench.Role]bench.Usage, written, read *partReport) map[string]float64 {
	w, rd := written.Phases[measured], read.Phases[measured]
	seconds := took.Seconds()
	m := map[string]float64{
		"seconds":                   seconds,
		"write_messages_per_second": float64(w.Count) / seconds,
		"read_messages_per_second":  float64(rd.Count) / seconds,
		"messages_per_second":       float64(rd.Count) / seconds / float64(r.cfg.groups()),
		"write_bytes_per_second":    float64(w.Count*r.cfg.Payload) / seconds,
		"read_bytes_per_second":     float64(rd.Count*r.cfg.Payload) / seconds,
		"errors":                    float64(w.Errors + rd.Errors),
		"unsent":                    float64(written.Late),
		"generator_cpu_seconds":     usage[bench.Generator].CPUSeconds,
		"generator_cpu_share":       usage[bench.Generator].CPUSeconds / seconds / float64(cores()),
	}
	if r.postmaster != 0 {
		m["postgres_cpu_seconds"] = usage[bench.Postgres].CPUSeconds
		m["postgres_cpu_share"] = usage[bench.Postgres].CPUSeconds / seconds / float64(cores())
	}
	if r.server != nil {
		m["server_cpu_seconds"] = usage[bench.Server].CPUSeconds
		m["server_cpu_share"] = usage[bench.Server].CPUSeconds / seconds / float64(cores())
		m["server_peak_rss_bytes"] = float64(usage[bench.Server].PeakRSSBytes)
	}
	for _, a := range read.Accounts {
		m["read"] += float64(a.Read)
		m["lost"] += float64(a.Lost)
		m["duplicated"] += float64(a.Duplicated)
		m["reordered"] += float64(a.Reordered)
	}
	for _, n := range written.Sent {
		m["sent"] += float64(n)
	}
	lateMetric(m, w.Late)
	w.Latency.Metrics(m, "write_")
	rd.Latency.Metrics(m, "read_")
	rd.EndToEnd.Metrics(m, "end_to_end_")
	if n := len(r.series); n > 0 {
		m["depth_at_end"] = float64(r.depth(r.series[n-1]))
	}
	r.flatness(m)
	return m
}

// flatness compares the last fifth of the run with the first.
func (r *queueRun) flatness(m map[string]float64) {
	n := len(r.series)
	if n < 11 { // two reports in each fifth
		return
	}
	rate := func(from, to queueSample) float64 {
		return float64(to.acked-from.acked) / to.at.Sub(from.at).Seconds()
	}
	fifth := (n - 1) / 5
	if first := rate(r.series[0], r.series[fifth]); first > 0 {
		m["last_fifth_share"] = rate(r.series[n-1-fifth], r.series[n-1]) / first
	}
}

// check verifies that everything written was read once by everybody.
func (r *queueRun) check(written, read *partReport) {
	errs := 0
	for i := range written.Phases {
		errs += written.Phases[i].Errors + read.Phases[i].Errors
	}
	r.result.Check(r.row+": no errors", errs == 0, "%d", errs)
	for i, a := range read.Accounts {
		name := r.row
		if len(read.Accounts) > 1 {
			name = fmt.Sprintf("%s: group %d", r.row, i+1)
		}
		r.result.Check(name+": every message read once", a.OK() && a.Read > 0, "%s", a)
		if r.cfg.Mode == "pubsub" && (sidesOf(r.cfg.QueueLoad).ordered || r.cfg.InFlight == 1) {
			r.result.Check(name+": in each writer's order", a.Reordered == 0, "%s", a)
		}
	}
}

// record keeps all latencies of what was measured.
func (r *queueRun) record(written, read *partReport) {
	w, rd := written.Phases[measured], read.Phases[measured]
	for prefix, h := range map[string]*bench.Histogram{"write_": w.Latency, "read_": rd.Latency, "end_to_end_": rd.EndToEnd} {
		r.result.Recording.Latencies(r.row, r.trial, prefix, h)
	}
}
