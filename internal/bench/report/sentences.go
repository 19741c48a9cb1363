package report

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/tidewire/tidewire/internal/bench"
)

// sentences summarise a result for readers who read only the top.
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
	if len(all) > 1 || r.Scenario == "events" { // its rows are different operations
		return all
	}
	if text := winner(r); text != "" {
		all = append(all, text)
	}
	return all
}

// even is the difference, as a share of the larger value, up to which two rows count as equal.
const even = 0.01

// winner says which row is best, its value, and the ratio to the worst.
func winner(r *bench.Result) string {
	m := groupHeadline(r.Scenario, r.Rows)
	best, worst := extremes(m, r.Rows)
	if best == nil {
		return ""
	}
	text := fmt.Sprintf("%s: %s %s", best.Name, figure(m.of(*best)), m.unit)
	if worst != nil {
		ratio := m.of(*best) / m.of(*worst)
		if m.less {
			text += fmt.Sprintf(", 1/%s of %s", figure3(1/ratio), worst.Name)
		} else {
			text += fmt.Sprintf(", %s × %s", figure3(ratio), worst.Name)
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

// extremes returns the best row and the worst row under the same load. Of rows
// that are equally good, the best is the one with the lowest p99. worst is nil
// if all rows did what was requested.
func extremes(m measure, rows []bench.Row) (best, worst *bench.Row) {
	var ranked []bench.Row
	for _, row := range rows {
		if m.of(row) > 0 && row.Name != "raw COPY" { // all others are compared with it
			ranked = append(ranked, row)
		}
	}
	if len(ranked) == 0 {
		return nil, nil
	}
	slices.SortStableFunc(ranked, func(a, b bench.Row) int {
		if m.less {
			a, b = b, a
		}
		return cmp.Compare(m.of(b), m.of(a))
	})
	best = &ranked[0]
	for i := range ranked {
		row := &ranked[i]
		if math.Abs(m.of(*row)-m.of(ranked[0])) <= even*m.of(ranked[0]) && p99Of(*row) < p99Of(*best) {
			best = row
		}
	}
	same := slices.DeleteFunc(slices.Clone(ranked), func(row bench.Row) bool { return otherLoad(row, *best) })
	if len(same) < 2 || kept(same) {
		return best, nil
	}
	return best, &same[len(same)-1]
}

// p99Of returns the 99th percentile of the row's main latencies.
func p99Of(row bench.Row) float64 {
	if p99, ok := row.Metrics[latencyPrefix(row.Metrics)+"latency_p99_ms"]; ok {
		return p99
	}
	return math.Inf(1)
}

// kept reports whether all rows did what was requested: then none is faster.
func kept(rows []bench.Row) bool {
	return !slices.ContainsFunc(rows, func(r bench.Row) bool { return r.Limiter != bench.LimitRate })
}

// figure3 formats a number with three significant digits.
func figure3(v float64) string {
	if v >= 100 {
		return count(v)
	}
	return fmt.Sprintf("%.3g", v)
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
