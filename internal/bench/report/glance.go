package report

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/tidewire/tidewire/internal/bench"
)

// tile is one answer of the first screen: a large value, its unit, and a note.
type tile struct {
	Name, Value, Unit, Note string
	Good, Bad               bool
}

// limits says what a limit means for the reader.
var limits = map[string]string{
	bench.LimitGenerator:  "the load generator, not what was measured",
	bench.LimitServer:     "the CPU of the server was full",
	bench.LimitPostgreSQL: "the CPU was full, most of it for PostgreSQL",
	bench.LimitRate:       "the rate was kept: more may be possible",
	bench.LimitWaiting:    "CPU was left: callers waited for answers and for the disk",
}

// tilesOf answers: is it valid, how fast, against what, how long does one take, what limits it, and
// where was that measured.
func tilesOf(r *bench.Result) []tile {
	all := []tile{validTile(r)}
	rows := leading(r)
	m := groupHeadline(r.Scenario, rows)
	if best, worst := extremes(m, rows); best != nil {
		all = append(all, speedTile(*best, m, len(rows)))
		if worst != nil {
			all = append(all, againstTile(r, *best, *worst, m))
		}
		prefix := latencyPrefix(best.Metrics)
		if p99 := best.Metrics[prefix+"latency_p99_ms"]; p99 > 0 {
			all = append(all, tile{Name: "99 % take at most", Value: figure(p99), Unit: "ms", Note: fmt.Sprintf("%s, p50 %s ms", prefixMeaning(prefix),
				figure(best.Metrics[prefix+"latency_p50_ms"]))})
		}
		if best.Limiter != "" {
			all = append(all, tile{Name: "Limited by", Value: best.Limiter, Note: limits[best.Limiter]})
		}
	}
	return append(all, machineTile(r.Environment))
}

// leading returns the rows that the tiles are about. The rows of events are different operations:
// then it is the first one, append.
func leading(r *bench.Result) []bench.Row {
	held := heldRows(r)
	if len(held) == 0 {
		return nil
	}
	return tables(&bench.Result{Scenario: r.Scenario, Rows: held})[0]
}

func validTile(r *bench.Result) tile {
	held := 0
	for _, c := range r.Checks {
		if c.OK {
			held++
		}
	}
	t := tile{Name: "Valid", Value: "yes", Note: fmt.Sprintf("%d of %d checks hold", held, len(r.Checks)), Good: true}
	if !r.Valid {
		t.Value, t.Good, t.Bad = "no", false, true
	}
	if len(r.Rows) == 0 {
		t.Note = "Nothing was measured: the result has no rows."
	}
	return t
}

func speedTile(best bench.Row, m measure, rows int) tile {
	t := tile{Name: "How fast", Value: figure(m.of(best)), Unit: m.unit, Note: best.Name}
	if rows > 1 {
		t.Name = "Fastest"
		if m.less {
			t.Name = "Lowest"
		}
	}
	if s := summarise(trials(best, m.metric)); s.Trials > 1 {
		t.Note += "; 95 % interval " + s.interval()
	} else {
		t.Note += "; one repeat: indicative"
	}
	return t
}

func againstTile(r *bench.Result, best, worst bench.Row, m measure) tile {
	t := tile{Name: "Against " + worst.Name, Note: fmt.Sprintf("%s has %s %s", worst.Name, figure(m.of(worst)), m.unit)}
	if ratio := m.of(best) / m.of(worst); m.less {
		t.Value = "1/" + figure3(1/ratio)
	} else {
		t.Value, t.Unit = figure3(ratio), "×"
	}
	if s := best.Metrics["share_of_raw_copy"]; s > 0 && r.Row("raw COPY") != nil {
		t.Note += fmt.Sprintf("; %s of raw COPY", percent(s))
	}
	return t
}

func machineTile(e bench.Environment) tile {
	t := tile{Name: "Measured on", Value: cmp.Or(optional(float64(e.Cores), count), "?"), Unit: "cores"}
	notes := []string{e.CPU}
	if p := e.PostgreSQL; p != nil {
		version, _, _ := strings.Cut(p.Version, " ") // without that of the package
		notes = append(notes, "PostgreSQL "+version, "fsync "+cmp.Or(p.Durability["fsync"], "unknown"))
	}
	t.Note = strings.Trim(strings.Join(notes, ", "), ", ")
	return t
}

// contents lists the results of a page that has several.
func contents(groups []group) []entry {
	var all []entry
	for _, g := range groups {
		for _, r := range g.Results {
			e := entry{Group: g.ID, resultView: r}
			for _, t := range r.Tiles {
				switch t.Name {
				case "How fast", "Fastest", "Lowest":
					e.Figure = t.Value + " " + t.Unit
				case "99 % take at most":
					e.P99 = t.Value + " ms"
				case "Limited by":
					e.Limiter = t.Value
				}
			}
			all = append(all, e)
		}
	}
	if len(all) < 2 {
		return nil
	}
	return all
}

// Main returns the main figure of a result in words, such as "15,600 messages/s", and the row that has it; "" if there is none.
func Main(r *bench.Result) (figure, row string) {
	rows := leading(r)
	m := groupHeadline(r.Scenario, rows)
	best, _ := extremes(m, rows)
	if best == nil {
		return "", ""
	}
	t := speedTile(*best, m, len(rows))
	return t.Value + " " + t.Unit, best.Name
}

// entry is a line of the contents.
type entry struct {
	resultView
	Group, Figure, P99, Limiter string
}
