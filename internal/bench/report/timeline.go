package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/tidewire/tidewire/internal/bench"
)

// mostPoints is the maximum number of points of a line in a timeline. In longer
// runs, several neighbouring seconds share a point.
const mostPoints = 600

// fewestTicks is the minimum number of ticks of a timeline.
const fewestTicks = 3

// checkpointsMetric counts the checkpoints that PostgreSQL completed in a Tick.
const checkpointsMetric = "postgres_checkpoints"

// timeline shows one repeat of a row, second by second.
type timeline struct {
	Name   string
	Note   string
	Charts []*chart
}

// track is a line of a timeline.
type track struct {
	name, metric string
	divisor      float64
}

// panels of a timeline. One without any of its metrics is left out.
var panels = []struct {
	title, unit string
	log         bool
	tracks      []track
}{
	{"Messages", "messages/s", false, []track{{"done", "messages_per_second", 1}, {"offered", "offered_messages_per_second", 1}}},
	{"Deliveries", "deliveries/s", false, []track{{"delivered", "deliveries_per_second", 1}}},
	{"Latency", "ms", true, []track{{"p50", "latency_p50_ms", 1}, {"p99", "latency_p99_ms", 1}, {"p99.9", "latency_p999_ms", 1}}},
	{"CPU", "cores", false, []track{
		{"server", "server_cpu_cores", 1}, {"PostgreSQL", "postgres_cpu_cores", 1}, {"generator", "generator_cpu_cores", 1},
	}},
	{"Memory", "MiB", false, []track{
		{"server", "server_rss_bytes", 1 << 20}, {"PostgreSQL", "postgres_rss_bytes", 1 << 20}, {"generator", "generator_rss_bytes", 1 << 20},
	}},
}

// timelines returns a timeline for each row, of the repeat nearest to the median.
func timelines(id string, r *bench.Result) (all []timeline) {
	var names []string
	byRow := make(map[string][]bench.Tick)
	for _, t := range r.Recording.AllTicks() {
		if byRow[t.Row] == nil {
			names = append(names, t.Row)
		}
		byRow[t.Row] = append(byRow[t.Row], t)
	}
	for i, name := range names {
		ticks, note := typical(r.Row(name), byRow[name])
		if len(ticks) < fewestTicks {
			continue
		}
		if t := newTimeline(fmt.Sprintf("%s-time%d", id, i), name, ticks); len(t.Charts) > 0 {
			t.Note = note + t.Note
			all = append(all, t)
		}
	}
	return all
}

// typical returns the ticks of the repeat nearest to the row's median.
func typical(row *bench.Row, ticks []bench.Tick) ([]bench.Tick, string) {
	trials := make(map[int][]bench.Tick)
	var numbers []int
	for _, t := range ticks {
		if trials[t.Trial] == nil {
			numbers = append(numbers, t.Trial)
		}
		trials[t.Trial] = append(trials[t.Trial], t)
	}
	if len(numbers) < 2 {
		return ticks, ""
	}
	best := numbers[0]
	if row != nil {
		name := headline(*row).metric
		off := func(trial int) float64 {
			if trial < 0 || trial >= len(row.Trials) {
				return math.Inf(1)
			}
			return math.Abs(row.Trials[trial][name] - row.Metrics[name])
		}
		best = slices.MinFunc(numbers, func(a, b int) int { return cmp.Compare(off(a), off(b)) })
	}
	return trials[best], fmt.Sprintf("Repeat %d of %d, the one nearest to the median. ", best+1, len(numbers))
}

func newTimeline(id, name string, ticks []bench.Tick) timeline {
	t := timeline{Name: name}
	width := (len(ticks) + mostPoints - 1) / mostPoints
	if width > 1 {
		t.Note = fmt.Sprintf("Each point stands for %d ticks: the mean, of latencies the worst. ", width)
	}
	marks, bands := events(ticks)
	if len(marks) > 0 {
		t.Note += fmt.Sprintf("%d checkpoints of PostgreSQL, as vertical lines. ", len(marks))
	}
	if len(bands) > 0 {
		t.Note += "Shaded: warm-up and drain, which do not count. "
	}
	for _, p := range panels {
		c := &chart{
			ID: fmt.Sprintf("%s-%d", id, len(t.Charts)), Title: p.title, Marks: marks, Bands: bands, Sync: id,
			XAxis: axis{Label: "seconds"}, YAxis: axis{Label: p.unit, Log: p.log},
		}
		for chunk := range slices.Chunk(ticks, max(width, 1)) {
			c.X = append(c.X, num(chunk[len(chunk)-1].At))
		}
		for i, tr := range p.tracks {
			if values, any := tr.values(ticks, max(width, 1), p.log); any {
				c.Series = append(c.Series, series{tr.name, i, values})
			}
		}
		if c.scale() {
			t.Charts = append(t.Charts, c)
		}
	}
	return t
}

// values returns the track's values, one for each chunk of ticks: the largest,
// or the mean. It reports whether there are any.
func (tr track) values(ticks []bench.Tick, width int, largest bool) (values []num, any bool) {
	for chunk := range slices.Chunk(ticks, width) {
		sum, most, n := 0.0, math.Inf(-1), 0.0
		for _, t := range chunk {
			if v, ok := t.Metrics[tr.metric]; ok {
				sum, most, n = sum+v, max(most, v), n+1
			}
		}
		switch {
		case n == 0:
			values = append(values, gap)
			continue
		case largest:
			values = append(values, num(most/tr.divisor))
		default:
			values = append(values, num(sum/n/tr.divisor))
		}
		any = true
	}
	return values, any
}

// events returns the checkpoints as marks, and the unmeasured phases as bands.
func events(ticks []bench.Tick) (marks []mark, bands []band) {
	for _, t := range ticks {
		if t.Metrics[checkpointsMetric] > 0 {
			marks = append(marks, mark{At: num(t.At)})
		}
		if t.Phase == "" || t.Phase == bench.PhaseMeasured {
			continue
		}
		if n := len(bands); n > 0 && bands[n-1].Label == t.Phase {
			bands[n-1].To = num(t.At)
			continue
		}
		bands = append(bands, band{num(max(t.At-t.Seconds, ticks[0].At)), num(t.At), t.Phase})
	}
	return marks, bands
}
