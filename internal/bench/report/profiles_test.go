package report_test

import (
	"testing"

	"github.com/tidewire/tidewire/internal/bench"
	"github.com/tidewire/tidewire/internal/bench/report"
)

// measured returns results like those of the chat scenarios.
func measured() []*bench.Result {
	results := []*bench.Result{bench.NewResult("chat-steady", nil), bench.NewResult("chat-burst", nil), bench.NewResult("chat-saturation", nil)}
	for _, r := range results {
		r.Environment = bench.Environment{CPU: "Some CPU", Cores: 2, MemoryBytes: 24 << 30, OS: "linux/amd64", Kernel: "6.1"}
		r.Check("sent", true, "all")
		r.Finish()
		for _, s := range []struct {
			name, made, language, profile string
			rate                          float64
		}{
			{"tidewire", "serve --only chat", "Go", report.Reference, 5e6},
			{"go-a", "plain", "Go", report.Minimal, 1e6},
			{"go-b", "a framework", "Go", report.Framework, 8e5},
			{"zig", "both at once", "Zig", report.Both, 2e6},
		} {
			for _, row := range []string{"", " 1000 clients"} {
				if r.Scenario != "chat-saturation" && row != "" {
					continue
				}
				r.AddTrial(s.name+row, s.made, map[string]float64{
					"deliveries_per_second": s.rate, "drop_rate": 0.25, "latency_p99_ms": 12, "binary_bytes": 1e9 / s.rate * (1 << 10),
					"server_cpu_seconds_per_million_deliveries": 1e6 / s.rate, "server_peak_rss_bytes": 40 << 20,
				})
				r.Row(s.name + row).Labels = map[string]string{"target": s.name, "language": s.language, "profile": s.profile}
				s.rate *= 0.9
			}
		}
		r.AddNote("rust", "", "not built: needs cargo")
		r.Row("rust").Labels = map[string]string{"target": "rust", "language": "Rust", "profile": report.Minimal}
		r.AddTrial("mine", "ws://127.0.0.1/ws", map[string]float64{"deliveries_per_second": 1})
		r.Row("mine").Labels = map[string]string{"target": "mine"}
	}
	return results
}

func TestCompareProfiles_Choice(t *testing.T) {
	t.Parallel()
	results := measured()
	for profile, want := range map[string][]string{
		"":               {"tidewire", "Go minimal: go-a", "Go framework: go-b", "Go: cost of the framework", "Zig minimal: zig", "Zig framework: zig", "Zig: cost of the framework", "Rust minimal: rust"},
		report.Framework: {"tidewire", "Go framework: go-b", "Zig framework: zig"},
		report.Minimal:   {"tidewire", "Go minimal: go-a", "Zig minimal: zig", "Rust minimal: rust"},
	} {
		r := report.CompareProfiles(profile, results...)
		if len(r.Rows) != len(want) || !r.Valid {
			t.Errorf("profile %q: %d rows, valid %v", profile, len(r.Rows), r.Valid)
		}
		for _, name := range want {
			if r.Row(name) == nil {
				t.Errorf("profile %q: no row %q", profile, name)
			}
		}
	}
	r := report.CompareProfiles("", results...)
	cost := r.Row("Go: cost of the framework").Metrics
	for name, want := range map[string]float64{"steady_deliveries_per_second_framework_cost": 0.2, "server_cpu_seconds_per_million_deliveries_framework_cost": 0.25} {
		if got := cost[name]; got < want-1e-9 || got > want+1e-9 {
			t.Errorf("%s: %g, want %g", name, got, want)
		}
	}
	if got := r.Row("Go minimal: go-a").Metrics; got["saturation_deliveries_per_second"] != 9e5 || got["share_of_reference"] != 0.2 {
		t.Errorf("the row with the most clients counts: %v", got)
	}
	behind := results[2].Row("go-a 1000 clients").Metrics
	for due, want := range map[float64]float64{2e6: 9e5, 5e5: 5e5} { // it arrives after the end, or was due before
		behind["due_deliveries_per_second"] = due
		got := report.CompareProfiles("", results...).Row("Go minimal: go-a").Metrics["saturation_deliveries_per_second"]
		if got != want {
			t.Errorf("%g were due and arrived: %g count, want %g", due, got, want)
		}
	}
	results[1].Check("lost", false, "1")
	results[1].Finish()
	if report.CompareProfiles("", results...).Valid {
		t.Error("one of the results is not valid, the comparison is")
	}
	results[0].Rows, results[1].Rows, results[2].Rows = results[0].Rows[:1], nil, nil
	if r := report.CompareProfiles("", results...); r != nil {
		t.Errorf("Tidewire alone: %+v", r.Rows)
	}
}
