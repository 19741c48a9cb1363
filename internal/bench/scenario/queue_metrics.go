package scenario

import (
	"fmt"
	"time"

	"github.com/tidewire/tidewire/internal/bench"
)

// metrics returns the metrics that do not need readers.
func (r *queueRun) metrics(took time.Duration, usage map[bench.Role]bench.Usage, written *workerReport) map[string]float64 {
	w := written.Phases[measured]
	seconds := took.Seconds()
	m := map[string]float64{
		"seconds":                   seconds,
		"messages_per_second":       float64(w.Count) / seconds,
		"write_messages_per_second": float64(w.Count) / seconds,
		"write_bytes_per_second":    float64(w.Count*r.cfg.Payload) / seconds,
		"errors":                    float64(w.Errors),
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
	for _, n := range written.Sent {
		m["sent"] += float64(n)
	}
	lateMetric(m, w.Late)
	w.Latency.Metrics(m, "write_")
	if n := len(r.series); n > 0 {
		m["depth_at_end"] = float64(r.depth(r.series[n-1]))
	}
	r.flatness(m)
	return m
}

// readMetrics adds the metrics of the readers.
func (r *queueRun) readMetrics(m map[string]float64, read *workerReport) {
	rd := read.Phases[measured]
	seconds := m["seconds"]
	m["read_messages_per_second"] = float64(rd.Count) / seconds
	m["messages_per_second"] = float64(rd.Count) / seconds / float64(r.cfg.groups())
	m["read_bytes_per_second"] = float64(rd.Count*r.cfg.Payload) / seconds
	m["errors"] += float64(rd.Errors)
	for _, a := range read.Accounts {
		m["read"] += float64(a.Read)
		accountMetrics(m, a)
	}
	if read.Received > 0 {
		m["wire_bytes_per_delivery"] = float64(read.Received) / max(m["read"], 1)
	}
	rd.Latency.Metrics(m, "read_")
	rd.EndToEnd.Metrics(m, "end_to_end_")
}

// accountMetrics adds the errors in an account.
func accountMetrics(m map[string]float64, a bench.Account) {
	m["lost"] += float64(a.Lost)
	m["duplicated"] += float64(a.Duplicated)
	m["reordered"] += float64(a.Reordered)
}

// flatness compares the last fifth of the run with the first.
func (r *queueRun) flatness(m map[string]float64) {
	n := len(r.series)
	if n < 11 { // at least two reports in each fifth
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

// check verifies that each group read every message once.
func (r *queueRun) check(written, read *workerReport) {
	r.checkErrors(written, read)
	for i, a := range read.Accounts {
		name := r.row
		if len(read.Accounts) > 1 {
			name = fmt.Sprintf("%s: group %d", r.row, i+1)
		}
		r.result.Check(name+": every message read once", a.OK() && a.Read > 0, "%s", a)
		if r.cfg.Mode == "pubsub" && r.keepsOrder() {
			r.result.Check(name+": in each writer's order", a.Reordered == 0, "%s", a)
		}
	}
}

func (r *queueRun) checkErrors(reports ...*workerReport) {
	errs := 0
	for _, report := range reports {
		for _, t := range report.Phases {
			errs += t.Errors
		}
	}
	r.result.Check(r.row+": no errors", errs == 0, "%d", errs)
}

// keepsOrder reports whether a writer's messages are stored in its order.
func (r *queueRun) keepsOrder() bool { return sidesOf(r.cfg.QueueLoad).ordered || r.cfg.InFlight == 1 }

// record stores all measured latencies of one kind.
func (r *queueRun) record(prefix string, latencies *bench.Histogram) {
	r.result.Recording.Latencies(r.row, r.trial, prefix, latencies)
}
