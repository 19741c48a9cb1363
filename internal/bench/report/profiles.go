package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tidewire/tidewire/internal/bench"
)

// Profiles of a server: the values of a row's label "profile".
const (
	Minimal   = "minimal"   // only a library
	Framework = "framework" // on top of a framework
	Both      = "both"      // one code base that counts as both
	Reference = "reference" // what all others are compared with
)

// compared lists the metrics of a comparison, the scenario whose rows they come
// from, whether the cost of a framework is computed for them, and whether more
// is better.
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

// dueDelivered counts deliveries that were due in the measured time, whenever
// they arrived; deliveries_per_second counts deliveries that arrived in it,
// whenever they were due. A server that lags gets the smaller of the two, since
// it catches up on earlier deliveries, or delivers after the end.
const dueDelivered = "due_deliveries_per_second"

// costSuffix is the suffix that turns the name of a metric into that of its cost.
const costSuffix = "_framework_cost"

// CompareProfiles compares servers by language and profile, and computes the
// cost of each language's framework. It uses the labels of the rows of
// chat-steady, chat-burst and chat-saturation. The last row of a server counts,
// which has the most clients. A profile other than "" excludes the other
// profile. It returns nil if there is no server to compare.
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

// comparedServers collects the compared metrics of each target with a profile,
// in the order of the rows.
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

// gather copies the compared metrics of a row. A later row of the same scenario
// replaces all metrics of an earlier one, also if it has none.
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

// languages returns the languages of all servers except the reference, in the order of the rows.
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

// costRow computes how much slower the framework is, and how much more
// resources it uses, as shares of the minimal server's values.
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

// profileColumns returns the columns of a comparison. Rows of costs show per
// cent in the columns of the metrics.
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
