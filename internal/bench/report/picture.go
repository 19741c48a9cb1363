package report

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/tidewire/tidewire/internal/bench"
)

// mostBars is the largest number of rows of a picture: the best ones. The tables have all.
const mostBars = 12

// picture is a chart of one line for each row. It needs no script, and its text has the size of the
// page's text at any width.
type picture struct {
	Title, Note string
	Keys        []key
	Rows        []bar
	Ticks       []barTick
}

// key is an entry of the legend: a colour, by its number, and its meaning.
type key struct {
	Style int
	Name  string
}

// share100 is a position on the width of a picture, in per cent.
type share100 float64

// String is the form that SVG takes.
func (s share100) String() string { return fmt.Sprintf("%.2f%%", float64(s)) }

type barTick struct {
	At    share100
	Label string
	// Anchor keeps the first and the last label inside.
	Anchor string
}

// bar is one row: rectangles, a thin line from Low to High, and dots.
type bar struct {
	Name, Value, Note string
	Best, Bad         bool
	Parts             []barPart
	Low, Range        share100
	Ranged            bool
	Dots              []barDot
}

type barPart struct {
	Style     int
	At, Width share100
}

type barDot struct {
	Style int
	At    share100
}

// at returns the place of a value on a picture's axis.
func (a *axis) at(v float64) share100 {
	return share100(100 * min(max(a.place(num(v)), 0), 1))
}

// barTicks labels an axis, at most at five places.
func (a *axis) barTicks() (all []barTick) {
	every := (len(a.Ticks) + 4) / 5
	for i, t := range a.Ticks {
		at := a.at(float64(t.At))
		if i%max(every, 1) != 0 || a.place(t.At) > 1.001 {
			continue
		}
		anchor := "middle"
		switch {
		case at < 4:
			anchor = "start"
		case at > 96:
			anchor = "end"
		}
		all = append(all, barTick{at, t.Label, anchor})
	}
	return all
}

// pictures shows how fast the rows of a scenario are, how long one message takes, and who used the CPU.
func pictures(files []File) (all []picture) {
	rows := pictured(files)
	if len(rows) == 0 {
		return nil
	}
	m := groupHeadline(files[0].Scenario, plainRows(rows))
	rows = bestRows(rows, m)
	cores := 0
	for _, f := range files {
		cores = max(cores, f.Environment.Cores)
	}
	for _, p := range []picture{speedPicture(rows, m, files[0].Scenario), latencyPicture(rows), cpuPicture(rows, cores)} {
		if len(p.Rows) > 0 {
			all = append(all, p)
		}
	}
	return all
}

// pictured returns the rows to compare. The rows of events are many operations, and each has one bar: its fastest row.
func pictured(files []File) (all []contender) {
	for _, f := range files {
		for _, rows := range tables(&bench.Result{Scenario: f.Scenario, Rows: heldRows(f.Result)}) {
			rows = slices.DeleteFunc(slices.Clone(rows), func(row bench.Row) bool { return len(row.Metrics) == 0 })
			if best, _ := extremes(groupHeadline(f.Scenario, rows), rows); f.Scenario == "events" && best != nil {
				rows = []bench.Row{*best}
			}
			for _, row := range rows {
				all = append(all, contender{labelOf(files, f, row.Name), row, f.Valid})
			}
		}
	}
	return all
}

func plainRows(rows []contender) []bench.Row {
	plain := make([]bench.Row, len(rows))
	for i, r := range rows {
		plain[i] = r.Row
	}
	return plain
}

// bestRows returns the best rows, in their original order.
func bestRows(rows []contender, m measure) []contender {
	if len(rows) <= mostBars {
		return rows
	}
	values := make([]float64, len(rows))
	for i, r := range rows {
		if values[i] = m.of(r.Row); m.less {
			values[i] = -values[i]
		}
	}
	slices.Sort(values)
	least := values[len(values)-mostBars]
	return slices.DeleteFunc(slices.Clone(rows), func(r contender) bool {
		v := m.of(r.Row)
		if m.less {
			v = -v
		}
		return v < least
	})
}

// grey is the style of what is shown for comparison only.
const grey = 7

func speedPicture(rows []contender, m measure, scenario string) picture {
	p := picture{Title: "How fast", Note: m.unit + ", more is better"}
	if m.less {
		p.Title, p.Note = "How little", m.unit+", less is better"
	}
	low, high := math.Inf(1), 0.0
	for _, r := range rows {
		if v := m.of(r.Row); v > 0 {
			low, high = min(low, v), max(high, v)
		}
		if s := summarise(trials(r.Row, m.metric)); s.Trials > 1 {
			high = max(high, s.High)
		}
	}
	if high == 0 {
		return picture{}
	}
	a := axis{Log: scenario == "events"}
	a.fit(low, high, true)
	p.Ticks = a.barTicks()
	if a.Log {
		p.Note += "; the fastest row of each operation"
		for _, r := range rows {
			if v := m.of(r.Row); v > 0 {
				p.Rows = append(p.Rows, bar{Name: r.name, Value: figure(v), Bad: !r.valid, Dots: []barDot{{0, a.at(v)}}, Note: limitedBy(r.Limiter)})
			}
		}
		return p
	}
	best, _ := extremes(m, plainRows(rows))
	for _, r := range rows {
		p.Rows = append(p.Rows, speedBar(r, best, m, &a, len(rows) > 1))
	}
	return p
}

// speedBar compares a row with the best one, and says what limited it.
func speedBar(r contender, best *bench.Row, m measure, a *axis, several bool) bar {
	v := m.of(r.Row)
	b := bar{Name: r.name, Value: figure(v), Bad: !r.valid, Parts: []barPart{{0, 0, a.at(v)}}, Note: limitedBy(r.Limiter)}
	switch {
	case r.Row.Name == "raw COPY":
		b.Parts[0].Style, b.Note = grey, "PostgreSQL alone, for comparison"
	case best == nil || v == 0 || !several || otherLoad(r.Row, *best):
	case r.Row.Name == best.Name && v == m.of(*best):
		b.Best = true
	default:
		if ratio := ratioTo(v/m.of(*best), m.less); ratio != "" {
			b.Note = strings.TrimSuffix(ratio+"; "+b.Note, "; ")
		}
	}
	if s := summarise(trials(r.Row, m.metric)); s.Trials > 1 {
		b.Low, b.Range, b.Ranged = a.at(s.Low), a.at(s.High)-a.at(s.Low), true
	}
	return b
}

// ratioTo compares a row with the best one; "" if they are equal.
func ratioTo(ratio float64, less bool) string {
	switch {
	case less && ratio > 1+even:
		return figure3(ratio) + " × the lowest"
	case !less && ratio < 1-even:
		return figure3(100*ratio) + " % of the best"
	}
	return ""
}

func limitedBy(limiter string) string {
	if limiter == "" {
		return ""
	}
	return "limited by " + limiter
}

// quantiles of a latency, with the colours that all charts use for them.
var quantiles = []struct{ name, label string }{{"p50", "p50"}, {"p99", "p99"}, {"p999", "p99.9"}}

func latencyPicture(rows []contender) picture {
	p := picture{Title: "How long one takes"}
	low, high := math.Inf(1), 0.0
	kinds := make(map[string]bool)
	for _, r := range rows {
		prefix := latencyPrefix(r.Metrics)
		for _, q := range quantiles {
			if v := r.Metrics[prefix+"latency_"+q.name+"_ms"]; v > 0 {
				low, high, kinds[prefixMeaning(prefix)] = min(low, v), max(high, v), true
			}
		}
	}
	if high == 0 {
		return picture{}
	}
	a := axis{Log: true}
	a.fit(low, high, false)
	p.Ticks, p.Note = a.barTicks(), "ms, less is better; "+strings.Join(sortedKeys(kinds), ", ")
	for i, q := range quantiles {
		p.Keys = append(p.Keys, key{i, q.label})
	}
	for _, r := range rows {
		prefix := latencyPrefix(r.Metrics)
		b := bar{Name: r.name, Bad: !r.valid}
		var texts []string
		for i, q := range quantiles {
			if v := r.Metrics[prefix+"latency_"+q.name+"_ms"]; v > 0 {
				b.Dots, texts = append(b.Dots, barDot{i, a.at(v)}), append(texts, figure3(v))
			}
		}
		if len(b.Dots) == 0 {
			continue
		}
		b.Low, b.Ranged = b.Dots[0].At, true
		b.Range = b.Dots[len(b.Dots)-1].At - b.Low
		b.Value = strings.Join(texts, " · ")
		p.Rows = append(p.Rows, b)
	}
	return p
}

// users of CPU time, with the colours of the timeline.
var users = []struct{ name, metric string }{
	{"server", "server_cpu_seconds"}, {"PostgreSQL", "postgres_cpu_seconds"}, {"generator", "generator_cpu_seconds"},
}

// cpuPicture shows the cores that each process used, on an axis of all cores of the machine.
func cpuPicture(rows []contender, cores int) picture {
	p := picture{Title: "CPU used", Note: fmt.Sprintf("cores, of the %d that the machine has", cores)}
	a := axis{}
	a.fit(0, float64(max(cores, 1)), true)
	a.Max = num(max(cores, 1))
	used := make(map[int]bool)
	for _, r := range rows {
		seconds := r.Metrics["seconds"]
		if seconds <= 0 || cores == 0 {
			continue
		}
		b, sum, texts := bar{Name: r.name, Bad: !r.valid}, 0.0, []string{}
		for i, u := range users {
			if v := r.Metrics[u.metric] / seconds; v > 0 {
				b.Parts = append(b.Parts, barPart{i, a.at(sum), a.at(sum+v) - a.at(sum)})
				sum, used[i], texts = sum+v, true, append(texts, u.name+" "+figure2(v))
			}
		}
		if sum > 0 {
			b.Value, b.Note = figure2(sum), strings.Join(texts, ", ")
			p.Rows = append(p.Rows, b)
		}
	}
	p.Ticks = a.barTicks()
	for i, u := range users {
		if used[i] {
			p.Keys = append(p.Keys, key{i, u.name})
		}
	}
	return p
}

// figure2 formats a number of cores.
func figure2(v float64) string { return fmt.Sprintf("%.2f", v) }
