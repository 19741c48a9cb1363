package report

import (
	"fmt"
	"maps"
	"slices"

	"github.com/tidewire/tidewire/bench"
)

// sentences are what became of a result, for who reads no further.
func sentences(r *bench.Result) []string {
	held := 0
	for _, c := range r.Checks {
		if c.OK {
			held++
		}
	}
	var all []string
	switch {
	case len(r.Rows) == 0:
		return []string{"Nothing was measured: the result has no rows."}
	case !r.Valid && len(r.Checks) == 0:
		all = append(all, "INVALID: nothing was checked. The figures below do not count.")
	case !r.Valid:
		all = append(all, fmt.Sprintf("INVALID: %d of %d checks failed. The figures below do not count.", len(r.Checks)-held, len(r.Checks)))
	default:
		all = append(all, fmt.Sprintf("Valid: %d of %d checks hold.", held, len(r.Checks)))
	}
	for _, c := range ceilings(r) {
		all = append(all, c.verdict(c.name))
	}
	if len(all) > 1 || r.Scenario == "events" { // whose rows do different things
		return all
	}
	if text := winner(r); text != "" {
		all = append(all, text)
	}
	return all
}

// winner says which row is best, how good it is, and by how much.
func winner(r *bench.Result) string {
	m := groupHeadline(r.Scenario, r.Rows)
	var ranked []bench.Row
	for _, row := range r.Rows {
		if row.Metrics[m.metric] > 0 && row.Name != "raw COPY" { // that is what all are compared with
			ranked = append(ranked, row)
		}
	}
	slices.SortStableFunc(ranked, func(a, b bench.Row) int {
		d := b.Metrics[m.metric] - a.Metrics[m.metric]
		if m.less {
			d = -d
		}
		switch {
		case d > 0:
			return 1
		case d < 0:
			return -1
		}
		return 0
	})
	if len(ranked) == 0 {
		return ""
	}
	best := ranked[0]
	text := fmt.Sprintf("%s: %s %s", best.Name, figure(best.Metrics[m.metric]), m.unit)
	if len(ranked) > 1 && !kept(ranked) {
		other := ranked[len(ranked)-1]
		ratio := best.Metrics[m.metric] / other.Metrics[m.metric]
		if m.less {
			text += fmt.Sprintf(", 1/%s of %s", figure3(1/ratio), other.Name)
		} else {
			text += fmt.Sprintf(", %s × %s", figure3(ratio), other.Name)
		}
	}
	prefix := latencyPrefix(best.Metrics)
	if p99 := best.Metrics[prefix+"latency_p99_ms"]; p99 > 0 {
		text += fmt.Sprintf("; p99 of its %s %s ms", prefixMeaning(prefix), figure(p99))
	}
	if best.Limiter != "" {
		text += "; limited by " + best.Limiter
	}
	if len(best.Trials) < 2 {
		text += "; one repeat: indicative"
	}
	return text + "."
}

// kept reports whether all rows did what they were asked for: none is the faster.
func kept(rows []bench.Row) bool {
	return !slices.ContainsFunc(rows, func(r bench.Row) bool { return r.Limiter != bench.LimitRate })
}

// figure3 has three digits that matter.
func figure3(v float64) string {
	if v >= 100 {
		return count(v)
	}
	return fmt.Sprintf("%.3g", v)
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
