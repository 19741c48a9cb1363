package report

import (
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/tidewire/tidewire/internal/bench"
)

func TestRivals(t *testing.T) {
	t.Parallel()
	r := bench.NewResult("chat-saturation", nil)
	add := func(target, profile, load string, metrics map[string]float64) {
		r.AddTrial(target+load, "", metrics)
		r.Row(target + load).Labels = map[string]string{"target": target, "profile": profile}
	}
	const p50, p99, cpu, peak = "latency_p50_ms", "latency_p99_ms", "server_cpu_seconds_per_million_deliveries", "server_peak_rss_bytes"
	for _, load := range []string{" 200 clients", " 1000 clients"} {
		add("tidewire", Reference, load, map[string]float64{"drop_rate": 0, p50: 1.27, p99: 2.75, cpu: 0.5, peak: 30 << 20})
	}
	add("quick", Minimal, " 200 clients", map[string]float64{"drop_rate": 0.01, p50: 0.7, p99: 2.7501, cpu: 0.4996, peak: 31 << 20})
	add("lossy", Framework, " 200 clients", map[string]float64{"drop_rate": 0.011, p50: 0.7, p99: 0.9, cpu: 0.1, peak: 10 << 20})
	add("quick", Minimal, " 1000 clients", map[string]float64{"drop_rate": 0, p50: 1.3, p99: 2.8, cpu: 0.6})
	add("mine", "", " 1000 clients", map[string]float64{p99: 2})
	r.AddNote("rust", "", "not built: needs cargo")
	want := []string{
		"quick 200 clients is better than tidewire in p50 ms (0.70 against 1.27).",
		"lossy 200 clients is better than tidewire in peak MiB (10 against 30).",
		"mine 1000 clients is better than tidewire in p99 ms (2.00 against 2.75).",
	}
	if got := betterServers(r); !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
	r.Finish()
	files := []File{{Name: "chat.json", Result: r}}
	for name, write := range map[string]func(w io.Writer) error{
		"text":     func(w io.Writer) error { return Table(w, r) },
		"Markdown": func(w io.Writer) error { return Markdown(w, files) },
		"page":     func(w io.Writer) error { return HTML(w, files) },
	} {
		var out strings.Builder
		if err := write(&out); err != nil || strings.Count(out.String(), " is better than tidewire in ") != len(want) {
			t.Errorf("%s, %v:\n%s", name, err, out.String())
		}
	}
}
