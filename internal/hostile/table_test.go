package hostile

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// phase is a part of a run.
type phase int

const (
	other    phase = iota
	alone          // before the attacks
	attacked       // during them
	phases
)

// latencies are how long the requests of regular clients took. No test asserts anything about them: the machine may be busy.
type latencies struct {
	mu    sync.Mutex
	now   phase
	taken [phases][]time.Duration
}

func (l *latencies) begin(p phase) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.now = p
}

func (l *latencies) note(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.taken[l.now] = append(l.taken[l.now], d)
}

// quantile returns that quantile of the times in a phase, in milliseconds; 0 if there are none.
func (l *latencies) quantile(p phase, q float64) float64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := slices.Sorted(slices.Values(l.taken[p]))
	if len(all) == 0 {
		return 0
	}
	return float64(all[min(len(all)-1, int(q*float64(len(all))))]) / float64(time.Millisecond)
}

// figures are what is shown of a run.
type figures struct {
	before, peak, after held
	memory              int64 // at the peak, in bytes
	refused             string
}

// refusals are the counters of what the server has refused, as text.
func refusals(samples map[string]float64) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(samples)) {
		metric, label, _ := strings.Cut(strings.TrimSuffix(name, "}"), "{")
		short := map[string]string{"tidewire_refused_connections_total": "connections", "tidewire_rate_limited_total": "over the rate", "tidewire_memory_evictions_total": "evicted"}[metric]
		if n := samples[name]; n > 0 && short != "" {
			all = append(all, fmt.Sprintf("%s %s %.0f", short, label, n))
		}
	}
	return strings.Join(all, ", ")
}

const tableHead = "| mode | server | p50 alone | p99 alone | p50 attacked | p99 attacked | p99s | sent / lost | memory / bound | descriptors | goroutines | refused |\n" +
	"|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|\n"

// show logs the figures as a row of a table. If TIDEWIRE_HOSTILE_TABLE names a file, the row is appended to it.
func (w *world) show(s *server, f figures) {
	mode := "open"
	if w.gate != nil {
		mode = "closed"
	}
	lost := 0
	for key, f := range w.faults {
		if strings.HasSuffix(key, ": lost") || strings.HasSuffix(key, ": not what is stored") {
			lost += f.times
		}
	}
	before, after := w.times.quantile(alone, 0.99), w.times.quantile(attacked, 0.99)
	row := fmt.Sprintf("| %s | %s | %.1f ms | %.1f ms | %.1f ms | %.1f ms | %.1f | %d / %d | %d / %d MiB | %d, %d, %d | %d, %d, %d | %s |\n", mode, s.kind,
		w.times.quantile(alone, 0.5), before, w.times.quantile(attacked, 0.5), after, after/max(before, 1), w.sent, lost, f.memory>>20, s.bound>>20,
		f.before.files, f.peak.files, f.after.files, f.before.goroutines, f.peak.goroutines, f.after.goroutines, f.refused)
	w.t.Logf("descriptors and goroutines are those before the attacks, at the peak and after them\n%s%s", tableHead, row)
	path := os.Getenv("TIDEWIRE_HOSTILE_TABLE")
	if path == "" {
		return
	}
	if at, err := os.Stat(path); err != nil || at.Size() == 0 {
		row = tableHead + row
	}
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		w.t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.WriteString(row); err != nil {
		w.t.Error(err)
	}
}
