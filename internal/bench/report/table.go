// Package report turns results into reports for people. A report is a pure
// function of results.
package report

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/tidewire/tidewire/internal/bench"
)

// Table writes the result as text: the table, or one for each operation, a
// summary, the columns in which another server is better, the failed checks, and
// whether the result is valid.
func Table(w io.Writer, r *bench.Result) error {
	var b strings.Builder
	for _, rows := range tables(r) {
		b.WriteString(render(r, rows) + "\n")
	}
	b.WriteString(soaks(r) + summary(r))
	for _, text := range betterServers(r) {
		b.WriteString(text + "\n")
	}
	_, err := fmt.Fprintf(w, "%s\n%s%s", machine(r.Environment), b.String(), verdict(r))
	return err
}

// tables divides the rows into tables: those of events by operation, which
// their names begin with.
func tables(r *bench.Result) (all [][]bench.Row) {
	if r.Scenario != "events" {
		return [][]bench.Row{r.Rows}
	}
	last := ""
	for _, row := range r.Rows {
		op, _, _ := strings.Cut(row.Name, "/")
		if op != last {
			all, last = append(all, nil), op
		}
		all[len(all)-1] = append(all[len(all)-1], row)
	}
	return all
}

func render(r *bench.Result, rows []bench.Row) string {
	t := table.NewWriter()
	t.SetStyle(table.StyleLight)
	t.Style().Format.Header = text.FormatDefault
	var used []column
	for _, c := range columns(r.Scenario, r.Row("naive")) {
		for _, row := range rows {
			if cell := c.cell(row); cell != "-" && cell != "" {
				used = append(used, c)
				break
			}
		}
	}
	var head table.Row
	var configs []table.ColumnConfig
	for i, c := range used {
		head = append(head, c.head)
		if c.right {
			configs = append(configs, table.ColumnConfig{Number: i + 1, Align: text.AlignRight, AlignHeader: text.AlignRight})
		}
	}
	t.AppendHeader(head)
	t.SetColumnConfigs(configs)
	for _, row := range rows {
		var cells table.Row
		for _, c := range used {
			cells = append(cells, c.cell(row))
		}
		t.AppendRow(cells)
	}
	return t.Render()
}

func machine(e bench.Environment) string {
	line := fmt.Sprintf("%s, %d cores, %s GiB, %s, kernel %s", e.CPU, e.Cores,
		fixed(0)(float64(e.MemoryBytes)/(1<<30)), e.OS, e.Kernel)
	if p := e.PostgreSQL; p != nil {
		line += fmt.Sprintf("\nPostgreSQL %s on %s, fsync %s, synchronous_commit %s", p.Version, p.Disk,
			p.Durability["fsync"], p.Durability["synchronous_commit"])
		if p.SyncP50Ms > 0 {
			line += fmt.Sprintf(", its disk durable in %.3f ms (p99 %.3f)", p.SyncP50Ms, p.SyncP99Ms)
		}
	}
	if e.CPUSteal > 0.001 {
		line += fmt.Sprintf("\n%.1f %% of CPU time went to other machines on the host", 100*e.CPUSteal)
	}
	return line
}

// soaks formats the verdicts of long runs.
func soaks(r *bench.Result) string {
	var b strings.Builder
	for _, row := range r.Rows {
		for _, v := range row.Verdicts {
			word := "FAIL"
			if v.OK {
				word = "pass"
			}
			fmt.Fprintf(&b, "%s %s %s: %s\n", word, row.Name, v.Name, v.Detail)
		}
	}
	return b.String()
}

func verdict(r *bench.Result) string {
	var b strings.Builder
	held := 0
	for _, c := range r.Checks {
		if c.OK {
			held++
			continue
		}
		fmt.Fprintf(&b, "FAILED %s: %s\n", c.Name, c.Detail)
	}
	word := "INVALID"
	if r.Valid {
		word = "VALID"
	}
	fmt.Fprintf(&b, "%s: %d of %d checks hold\n", word, held, len(r.Checks))
	return b.String()
}

func fixed(digits int) func(float64) string {
	return func(v float64) string { return fmt.Sprintf("%.*f", digits, v) }
}

func percent(v float64) string { return fmt.Sprintf("%.0f %%", 100*v) }
func mib(v float64) string     { return fmt.Sprintf("%.0f", v/(1<<20)) }
func tenths(v float64) string  { return fmt.Sprintf("%.1f", v/(1<<20)) }
func kib(v float64) string     { return fmt.Sprintf("%.1f", v/(1<<10)) }

// count groups the digits of a whole number by thousands.
func count(v float64) string {
	s := fmt.Sprintf("%.0f", v)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Duration formats a duration for people.
func Duration(d time.Duration) string {
	if d >= 10*time.Second {
		return d.Round(time.Second).String()
	}
	return d.Round(time.Millisecond).String()
}
