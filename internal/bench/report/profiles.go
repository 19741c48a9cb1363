package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tidewire/tidewire/internal/bench"
)

// Profiles of a server, as the label "profile" of a row has them.
const (
	Minimal   = "minimal"   // a library alone
	Framework = "framework" // on top of a framework
	Both      = "both"      // one code base, which counts as either
	Reference = "reference" // what all are compared with
)

// compared are the metrics of a comparison, from the rows of which scenario they
// come, whether a framework's cost is told in them, and whether more is better.
var compared = []struct {
	name, scenario, metric string
	costs, gain            bool
}{
	{"steady_deliveries_per_second", "chat-steady", "deliveries_per_second", true, true},
	{"burst_deliveries_per_second", "chat-burst", "deliveries_per_second", true, true},
	{"saturation_deliveries_per_second", "chat-saturation", "deliveries_per_second", true, true},
	{"drop_rate", "chat-saturation", "drop_rate", false, false},
	{"latency_p99_ms", "chat-saturation", "latency_p99_ms", false, false},
	{"server_cpu_seconds_per_million_deliveries", "chat-saturation", "server_cpu_seconds_per_million_deliveries", true, false},
	{"server_peak_rss_bytes", "chat-saturation", "server_peak_rss_bytes", true, false},
	{"binary_bytes", "chat-saturation", "binary_bytes", true, false},
}

// dueDelivered counts what was due in the measured time, whenever it arrived;
// deliveries_per_second what arrived in it, whenever it was due. A server that
// lags is credited with the smaller: it catches up on what was due before, or
// delivers after the end.
const dueDelivered = "due_deliveries_per_second"

// costSuffix makes the name of a cost out of that of what is compared.
const costSuffix = "_framework_cost"

// CompareProfiles sets servers side by side, by language and profile, and tells
// what each language's framework costs. It goes by the labels of the results'
// rows: those of chat-steady, chat-burst and chat-saturation, of which the last
// row of a server counts, the one with the most clients. A profile other than ""
// leaves the other one out. It returns nil if there is nobody to compare.
func CompareProfiles(profile string, results ...*bench.Result) *bench.Result {
	servers := comparedServers(results)
	out := bench.NewResult("chat-profiles", map[string]any{"profile": profile})
	var reference float64
	for _, s := range servers {
		if s.Labels["profile"] == Reference {
			reference = s.Metrics["saturation_deliveries_per_second"]
			out.Rows = append(out.Rows, s)
		}
	}
	before := len(out.Rows)
	for _, language := range languages(servers) {
		var pair [2]*bench.Row
		for i, want := range []string{Minimal, Framework} {
			if profile != "" && profile != want {
				continue
			}
			for _, s := range servers {
				if got := s.Labels["profile"]; s.Labels["language"] == language && (got == want || got == Both) {
					out.Rows = append(out.Rows, profileRow(s, want, reference))
					pair[i] = &s
				}
			}
		}
		if pair[0] != nil && pair[1] != nil {
			out.Rows = append(out.Rows, costRow(language, *pair[0], *pair[1]))
		}
	}
	if len(out.Rows) == before {
		return nil
	}
	for _, r := range results {
		out.Check(r.Scenario+" is valid", r.Valid, "of %s", r.Started.Format("2006-01-02 15:04:05"))
		out.Environment = r.Environment
	}
	out.Finish()
	return out
}

// comparedServers gathers what is known of each target with a profile, in the
// order of their rows.
func comparedServers(results []*bench.Result) (servers []bench.Row) {
	for _, r := range results {
		for _, row := range r.Rows {
			name := row.Labels["target"]
			if name == "" || row.Labels["profile"] == "" {
				continue
			}
			i := slices.IndexFunc(servers, func(s bench.Row) bool { return s.Labels["target"] == name })
			if i < 0 {
				i = len(servers)
				servers = append(servers, bench.Row{Name: name, Description: row.Description, Labels: row.Labels, Metrics: make(map[string]float64)})
			}
			gather(&servers[i], r.Scenario, row)
		}
	}
	return servers
}

// gather takes over what is compared of a row. A later row of the same scenario
// replaces an earlier one whole, also with nothing.
func gather(server *bench.Row, scenario string, row bench.Row) {
	for _, c := range compared {
		if c.scenario != scenario {
			continue
		}
		delete(server.Metrics, c.name)
		if _, ok := row.Metrics[c.metric]; ok {
			server.Metrics[c.name] = measure{metric: c.metric}.of(row)
		}
	}
	if row.Note != "" && !strings.Contains(server.Note, row.Note) {
		server.Note = strings.TrimPrefix(server.Note+"; "+row.Note, "; ")
	}
}

// languages are those of all but the reference, in the order of their rows.
func languages(servers []bench.Row) (names []string) {
	for _, s := range servers {
		if name := s.Labels["language"]; s.Labels["profile"] != Reference && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

func profileRow(server bench.Row, profile string, reference float64) bench.Row {
	row := server
	row.Name = fmt.Sprintf("%s %s: %s", server.Labels["language"], profile, server.Name)
	row.Labels = map[string]string{"target": server.Name, "language": server.Labels["language"], "profile": profile}
	row.Metrics = maps.Clone(server.Metrics)
	if rate, ok := row.Metrics["saturation_deliveries_per_second"]; ok && reference > 0 {
		row.Metrics["share_of_reference"] = rate / reference
	}
	return row
}

// costRow says how much less is done with the framework, and how much more it
// takes, as shares of the minimal server's.
func costRow(language string, minimal, framework bench.Row) bench.Row {
	row := bench.Row{Name: language + ": cost of the framework", Labels: map[string]string{"language": language}, Metrics: make(map[string]float64)}
	if minimal.Name == framework.Name {
		row.Note = "one code base is both"
	}
	for _, c := range compared {
		without, ok1 := minimal.Metrics[c.name]
		with, ok2 := framework.Metrics[c.name]
		if !ok1 || !ok2 || without == 0 || !c.costs {
			continue
		}
		cost := with/without - 1
		if c.gain {
			cost = 1 - with/without
		}
		row.Metrics[c.name+costSuffix] = cost
	}
	return row
}

// profileColumns are those of a comparison. The rows of costs have theirs below
// what they are about, in per cent.
func profileColumns() []column {
	or := func(head, name string, format func(float64) string) column {
		plain := metric(head, name, format)
		return column{head, true, func(r bench.Row) string {
			if cost, ok := r.Metrics[name+costSuffix]; ok {
				return fmt.Sprintf("%+.1f %%", 100*cost)
			}
			return plain.cell(r)
		}}
	}
	return []column{
		nameColumn("language, profile: server"),
		descriptionColumn(),
		or("steady deliveries/s", "steady_deliveries_per_second", count),
		or("burst deliveries/s", "burst_deliveries_per_second", count),
		or("saturation deliveries/s", "saturation_deliveries_per_second", count),
		metric("of Tidewire", "share_of_reference", percent),
		metric("lost", "drop_rate", share),
		metric("p99 ms", "latency_p99_ms", fixed(2)),
		or("CPU s/M", "server_cpu_seconds_per_million_deliveries", fixed(3)),
		or("peak MiB", "server_peak_rss_bytes", mib),
		or("binary MiB", "binary_bytes", tenths),
		noteColumn(),
	}
}
