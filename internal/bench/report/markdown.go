package report

import (
	"fmt"
	"io"
	"strings"

	"github.com/tidewire/tidewire/internal/bench"
)

// Markdown writes the same content as HTML, without pictures.
func Markdown(w io.Writer, files []File) error {
	v, err := newView(files)
	if err != nil {
		return err
	}
	m := &markdown{}
	m.line("# %s", escaped(v.Title))
	for _, r := range v.Invalid {
		m.line("> **INVALID**: %s did not pass its own checks. Its figures do not count.", escaped(r.File))
	}
	m.line("## Verdict")
	for _, g := range v.Groups {
		for _, r := range g.Results {
			m.line("**%s** (%s)", escaped(r.Scenario), escaped(r.File))
			for _, text := range r.Verdict {
				m.line("%s", escaped(text))
			}
			m.checks("holds", "FAILED", r.Thresholds)
		}
	}
	for _, g := range v.Groups {
		m.group(g)
	}
	_, err = io.WriteString(w, strings.TrimRight(m.b.String(), "\n")+"\n")
	return err
}

// markdown collects the text. Every block ends with an empty line.
type markdown struct{ b strings.Builder }

func (m *markdown) line(format string, args ...any) {
	fmt.Fprintf(&m.b, format+"\n\n", args...)
}

func (m *markdown) group(g group) {
	m.line("## %s", escaped(g.Scenario))
	for _, t := range g.Glance {
		m.table(t)
	}
	if len(g.Ceilings) > 0 {
		m.line("### Offered rate against latency")
		m.line("%s", escaped(g.KneeMeaning))
	}
	for _, c := range g.Ceilings {
		m.line("%s", escaped(c.Verdict))
		m.table(c.Steps)
	}
	if g.Load != nil {
		m.line("### Does it carry your load?")
		m.line("%s", escaped(g.Load.Assumptions()))
		m.line("%s", escaped(g.Load.Needed))
		m.table(g.Load.Table())
	}
	for _, r := range g.Results {
		m.result(r)
	}
}

func (m *markdown) result(r resultView) {
	word := "VALID"
	if !r.Valid {
		word = "INVALID"
	}
	m.line("### %s: %s", escaped(r.File), word)
	m.line("Started %s.", r.Started)
	m.checks("holds", "FAILED", r.Failed)
	for _, t := range r.Tables {
		m.table(t)
	}
	for _, text := range r.Rivals {
		fmt.Fprintf(&m.b, "- %s\n", escaped(text))
	}
	if len(r.Rivals) > 0 {
		m.b.WriteString("\n")
	}
	if len(r.Trends) > 0 {
		t := tableView{Head: []cell{{Text: "row"}, {Text: "of"}, {Text: "slope an hour", Right: true}, {Text: "95 % interval", Right: true}, {Text: "over the run", Right: true}, {Text: "which"}}}
		for _, tr := range r.Trends {
			t.Rows = append(t.Rows, []cell{{Text: tr.Row}, {Text: tr.What}, {Text: tr.Slope}, {Text: tr.Low + " to " + tr.High}, {Text: tr.Change}, {Text: tr.Judgement}})
		}
		m.table(t)
	}
	for _, c := range r.Verdicts {
		m.checks("pass", "FAIL", []bench.Check{{Name: c.Row + ", " + c.Name, OK: c.OK, Detail: c.Detail}})
	}
	m.evidence(r.Evidence)
}

func (m *markdown) evidence(e provenance) {
	m.line("#### Why believe this")
	for _, c := range e.Cautions {
		m.line("**%s**", escaped(c))
	}
	if e.Command != "" {
		m.line("Command to run it again:")
		m.line("%s", fenced(e.Command))
	}
	for _, part := range []struct {
		head string
		all  []fact
	}{
		{"Machine", e.Machine}, {"PostgreSQL", e.Database}, {"Durability", e.Durability},
		{"Settings other than PostgreSQL's own", e.Settings}, {"Parameters", e.Params},
	} {
		if len(part.all) == 0 {
			continue
		}
		texts := make([]string, len(part.all))
		for i, f := range part.all {
			texts[i] = escaped(f.Name) + " " + escaped(f.Text)
		}
		m.line("%s: %s.", part.head, strings.Join(texts, "; "))
	}
	names := make([]string, len(e.Files))
	for i, name := range e.Files {
		names[i] = escaped(name)
	}
	m.line("Raw files: %s.", strings.Join(names, ", "))
	m.checks("holds", "FAILED", e.Checks)
}

func (m *markdown) checks(good, bad string, all []bench.Check) {
	for _, c := range all {
		word := "**" + bad + "**"
		if c.OK {
			word = good
		}
		detail := ""
		if c.Detail != "" {
			detail = ": " + escaped(c.Detail)
		}
		fmt.Fprintf(&m.b, "- %s %s%s\n", word, escaped(c.Name), detail)
	}
	if len(all) > 0 {
		m.b.WriteString("\n")
	}
}

func (m *markdown) table(t tableView) {
	if len(t.Rows) == 0 {
		return
	}
	if t.Title != "" {
		m.line("**%s**", escaped(t.Title))
	}
	m.cells(t.Head)
	rule := make([]cell, len(t.Head))
	for i, h := range t.Head {
		if rule[i].Text = "---"; h.Right {
			rule[i].Text = "---:"
		}
	}
	m.cells(rule)
	for _, row := range t.Rows {
		m.cells(row)
	}
	m.b.WriteString("\n")
}

func (m *markdown) cells(row []cell) {
	m.b.WriteString("|")
	for _, c := range row {
		fmt.Fprintf(&m.b, " %s |", escaped(c.Text))
	}
	m.b.WriteString("\n")
}

// escaper escapes the characters that Markdown or HTML would interpret.
var escaper = strings.NewReplacer("\\", "\\\\", "|", "\\|", "<", "&lt;", ">", "&gt;", "*", "\\*", "_", "\\_", "`", "\\`",
	"[", "\\[", "]", "\\]", "\r", " ", "\n", " ")

func escaped(text string) string { return escaper.Replace(text) }

// fenced formats a code block, with a fence longer than any in the text.
func fenced(text string) string {
	fence := "```"
	for strings.Contains(text, fence) {
		fence += "`"
	}
	return fence + "\n" + text + "\n" + fence
}
