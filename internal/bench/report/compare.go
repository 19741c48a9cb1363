package report

import (
	"fmt"
	"io"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"golang.org/x/perf/benchmath"

	"github.com/tidewire/tidewire/internal/bench"
)

// Change is how one metric of one row differs between two results.
type Change struct {
	Row, Metric string
	Old, New    Summary
	// P is the probability of a difference at least this large by chance alone,
	// by a Mann-Whitney U-test over the trials.
	P float64
	// Significant: P is below 0.05. This needs at least four trials in each
	// result.
	Significant bool
}

// Summary is the median of some trials with its 95 % confidence interval.
type Summary struct {
	Median, Low, High float64 // Low and High are NaN for one trial
	Trials            int
}

// Ratio returns new divided by old, or NaN if old is 0.
func (c Change) Ratio() float64 {
	if c.Old.Median == 0 {
		return math.NaN()
	}
	return c.New.Median / c.Old.Median
}

// Compare returns the changes of every metric of every row that both results
// have, in the order of the first.
func Compare(a, b *bench.Result) (all []Change) {
	for _, row := range a.Rows {
		other := b.Row(row.Name)
		if other == nil {
			continue
		}
		for _, metric := range slices.Sorted(maps.Keys(row.Metrics)) {
			if _, ok := other.Metrics[metric]; !ok {
				continue
			}
			was, is := trials(row, metric), trials(*other, metric)
			test := benchmath.AssumeNothing.Compare(
				benchmath.NewSample(slices.Clone(was), &benchmath.DefaultThresholds),
				benchmath.NewSample(slices.Clone(is), &benchmath.DefaultThresholds))
			all = append(all, Change{
				Row: row.Name, Metric: metric, Old: summarise(was), New: summarise(is), P: test.P, Significant: test.P < test.Alpha,
			})
		}
	}
	return all
}

// trials returns the values of a metric, one for each repeat.
func trials(row bench.Row, metric string) (values []float64) {
	for _, t := range row.Trials {
		if v, ok := t[metric]; ok {
			values = append(values, v)
		}
	}
	if len(values) == 0 {
		values = []float64{row.Metrics[metric]}
	}
	return values
}

func summarise(values []float64) Summary {
	s := Summary{Trials: len(values)}
	s.Median, s.Low, s.High = Interval(values)
	return s
}

// Differences lists what must be the same before two results may be compared, and
// differs: scenario, parameters, machine, database, durability. The version of
// the program may differ, since comparisons are made between versions.
func Differences(a, b *bench.Result) (all []string) {
	differ := func(what string, was, is any) {
		if !reflect.DeepEqual(was, is) {
			all = append(all, fmt.Sprintf("%s: %v, and %v", what, was, is))
		}
	}
	differ("scenario", a.Scenario, b.Scenario)
	differMaps(&all, "parameter", a.Params, b.Params)
	ea, eb := a.Environment, b.Environment
	differ("CPU", ea.CPU, eb.CPU)
	differ("cores", ea.Cores, eb.Cores)
	differ("memory", ea.MemoryBytes, eb.MemoryBytes)
	differ("OS", ea.OS, eb.OS)
	differ("kernel", ea.Kernel, eb.Kernel)
	pa, pb := ea.PostgreSQL, eb.PostgreSQL
	if pa == nil || pb == nil {
		differ("PostgreSQL", pa != nil, pb != nil)
		return all
	}
	differ("PostgreSQL", pa.Version, pb.Version)
	differ("disk", pa.Disk, pb.Disk)
	differMaps(&all, "durability", pa.Durability, pb.Durability)
	differMaps(&all, "setting", figureSettings(pa), figureSettings(pb))
	return all
}

// figureSettings returns the settings that may change a figure. Results of earlier versions also
// have others.
func figureSettings(p *bench.PostgreSQL) map[string]string {
	all := maps.Clone(p.Settings)
	maps.DeleteFunc(all, func(name, _ string) bool { return !bench.ChangesFigures(name) })
	return all
}

func differMaps[V any](all *[]string, what string, a, b map[string]V) {
	keys := maps.Clone(a)
	if keys == nil {
		keys = make(map[string]V)
	}
	maps.Copy(keys, b)
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		was, had := a[key]
		is, has := b[key]
		if had != has || !reflect.DeepEqual(was, is) {
			*all = append(*all, fmt.Sprintf("%s %s: %s, and %s", what, key, said(was, had), said(is, has)))
		}
	}
}

func said(v any, has bool) string {
	if !has {
		return "none"
	}
	return fmt.Sprint(v)
}

// Main reports whether the metric is among the most important ones.
func (c Change) Main() bool { return mainMetric(c.Metric) }

// mainMetric reports whether a metric is among the most important ones.
func mainMetric(name string) bool {
	return strings.HasSuffix(name, "_per_second") || strings.HasSuffix(name, "cpu_seconds") ||
		strings.HasSuffix(name, "latency_p50_ms") || strings.HasSuffix(name, "latency_p99_ms") || strings.HasSuffix(name, "latency_p999_ms") ||
		slices.Contains([]string{"seconds", "lost", "drop_rate", "errors", "server_peak_rss_bytes", "wal_bytes_per_message", "wal_bytes_per_event",
			"allocs_per_call", "bytes_per_call", "wire_bytes_per_delivery", "server_cpu_seconds_per_million_deliveries"}, name)
}

// ComparisonTable writes the changes from a to b as text: those of the most
// important metrics, or all.
func ComparisonTable(w io.Writer, a, b *bench.Result, everything bool) error {
	t := table.NewWriter()
	t.SetStyle(table.StyleLight)
	t.Style().Format.Header = text.FormatDefault
	t.AppendHeader(table.Row{"row", "metric", "before", "95 % interval", "after", "95 % interval", "change", "p"})
	var right []table.ColumnConfig
	for i := 3; i <= 8; i++ {
		right = append(right, table.ColumnConfig{Number: i, Align: text.AlignRight, AlignHeader: text.AlignRight})
	}
	t.SetColumnConfigs(right)
	last := ""
	for _, c := range Compare(a, b) {
		if !everything && !c.Main() {
			continue
		}
		name := c.Row
		if name == last {
			name = ""
		}
		last = c.Row
		t.AppendRow(table.Row{name, c.Metric, figure(c.Old.Median), c.Old.interval(), figure(c.New.Median), c.New.interval(), c.change(), probability(c)})
	}
	var missing strings.Builder
	for _, line := range Missing(a, b) {
		fmt.Fprintln(&missing, line)
	}
	_, err := fmt.Fprintf(w, "%s\n%s~: no significant difference (U-test, p < 0.05, which takes four trials of each). Medians.\n", t.Render(), missing.String())
	return err
}

// Missing says which rows only one of two results has.
func Missing(a, b *bench.Result) (all []string) {
	for _, lack := range []struct {
		of, in *bench.Result
		where  string
	}{{a, b, "the second"}, {b, a, "the first"}} {
		for _, row := range lack.of.Rows {
			if lack.in.Row(row.Name) == nil {
				all = append(all, fmt.Sprintf("%s is not in %s", row.Name, lack.where))
			}
		}
	}
	return all
}

func (s Summary) interval() string {
	if math.IsNaN(s.Low) {
		return "one trial"
	}
	return figure(s.Low) + " to " + figure(s.High)
}

// change formats a change in per cent, or "~" if it is not significant.
func (c Change) change() string {
	switch ratio := c.Ratio(); {
	case !c.Significant:
		return "~"
	case math.IsNaN(ratio):
		return "from 0"
	default:
		return fmt.Sprintf("%+.1f %%", 100*(ratio-1))
	}
}

func probability(c Change) string {
	if c.Old.Trials < 2 || c.New.Trials < 2 {
		return "-"
	}
	return fmt.Sprintf("%.3f", c.P)
}

// figure formats a number with four significant digits, grouped by thousands.
func figure(v float64) string {
	switch size := math.Abs(v); {
	case size >= 1000 || size == math.Trunc(size):
		return count(v)
	case size >= 100:
		return fmt.Sprintf("%.1f", v)
	case size >= 10:
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprintf("%.4g", v)
}
