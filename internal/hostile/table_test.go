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

// latencies are how long the requests of regulars took. No test asserts anything about them: the machine may be busy.
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

// quantile returns that quantile of the times in a phase; 0 if there are none.
func (l *latencies) quantile(p phase, q float64) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := slices.Sorted(slices.Values(l.taken[p]))
	if len(all) == 0 {
		return 0
	}
	return all[min(len(all)-1, int(q*float64(len(all))))]
}

// figures are what is shown of a run.
type figures struct {
	before, peak, after held
	memory              int64 // at the peak, in bytes
	refused             string
}

// sample keeps the largest numbers of what the server holds, until stop is closed.
func (f *figures) sample(s *server, stop <-chan struct{}) {
	for {
		if now, err := s.held(); err == nil {
			f.peak = held{max(f.peak.goroutines, now.goroutines), max(f.peak.files, now.files)}
		}
		select {
		case <-stop:
			return
		case <-time.After(500 * time.Millisecond):
		}
	}
}

// refusals are the counters of what the server has refused, as text.
func refusals(samples map[string]float64) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(samples)) {
		n := samples[name]
		if n == 0 || strings.Contains(name, "postgres") {
			continue
		}
		for prefix, short := range map[string]string{
			"tidewire_refused_connections_total": "", "tidewire_rate_limited_total": "over the rate", "tidewire_memory_evictions_total": "evicted",
		} {
			if rest, ok := strings.CutPrefix(name, prefix); ok {
				_, label, _ := strings.Cut(strings.Trim(rest, "{}"), "=")
				all = append(all, fmt.Sprintf("%s%s %.0f", short, strings.Trim(label, `"`), n))
			}
		}
	}
	if all == nil {
		return "none"
	}
	return strings.Join(all, ", ")
}

const tableHead = "| mode | server | p50 alone | p99 alone | p50 attacked | p99 attacked | p99s | sent / lost | memory / bound | descriptors | goroutines | refused |\n" +
	"|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|\n"

// show logs the figures as a row of a table. If TIDEWIRE_HOSTILE_TABLE names a file, the row is appended to it.
func (w *world) show(f figures) {
	mode, kind, bound := "open", "race detector", "–"
	if w.gate != nil {
		mode = "closed"
	}
	if w.program != "" {
		kind, bound = "plain", fmt.Sprint(memoryBound>>20)
	}
	ms := func(p phase, q float64) string {
		return fmt.Sprintf("%.1f ms", float64(w.times.quantile(p, q))/float64(time.Millisecond))
	}
	ratio := float64(w.times.quantile(attacked, 0.99)) / float64(max(1, w.times.quantile(alone, 0.99)))
	row := fmt.Sprintf("| %s | %s | %s | %s | %s | %s | %.1f | %d / %d | %d / %s MiB | %d, %d, %d | %d, %d, %d | %s |\n", mode, kind,
		ms(alone, 0.5), ms(alone, 0.99), ms(attacked, 0.5), ms(attacked, 0.99), ratio, w.sent, w.lost(), f.memory>>20, bound,
		f.before.files, f.peak.files, f.after.files, f.before.goroutines, f.peak.goroutines, f.after.goroutines, f.refused)
	w.t.Logf("descriptors and goroutines are those before the attacks, at the peak and after them\n%s%s", tableHead, row)
	path := os.Getenv("TIDEWIRE_HOSTILE_TABLE")
	if path == "" {
		return
	}
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		w.t.Error(err)
		return
	}
	defer file.Close()
	if at, err := file.Stat(); err == nil && at.Size() == 0 {
		row = tableHead + row
	}
	if _, err := file.WriteString(row); err != nil {
		w.t.Error(err)
	}
}

// lost is the number of messages of well-behaved clients that were answered or stored, and are missing.
func (w *world) lost() (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for key, f := range w.faults {
		if strings.HasSuffix(key, ": lost") || strings.HasSuffix(key, ": not what is stored") {
			n += f.times
		}
	}
	return n
}
