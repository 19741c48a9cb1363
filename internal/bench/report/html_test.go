package report_test

import (
	"crypto/sha256"
	"encoding/base64"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"github.com/tidewire/tidewire/internal/bench"
	"github.com/tidewire/tidewire/internal/bench/report"
)

// rendered returns the output of a report writer for files.
func rendered(t *testing.T, write func(io.Writer, []report.File) error, files ...report.File) string {
	t.Helper()
	var out strings.Builder
	if err := write(&out, files); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// golden compares a text with the file of that name in testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs; go test ./internal/bench/report -update rewrites it. Got\n%s", name, got)
	}
}

func samples(t *testing.T) []report.File {
	return []report.File{
		open(t, "queue", queueFixture("queue")), open(t, "ceiling", ceilingFixture()), open(t, "ingest", invalidFixture()),
	}
}

func TestCSV_Golden(t *testing.T) {
	t.Parallel()
	golden(t, "report.csv", rendered(t, report.CSV, samples(t)...))
}

// void are elements without an end tag.
var void = []string{"meta", "link", "input", "br", "hr", "img"}

// wellFormed fails if an element is not closed in order, and returns all elements
// with their attributes.
func wellFormed(t *testing.T, page string) (elements []html.Token) {
	t.Helper()
	var open []string
	z := html.NewTokenizer(strings.NewReader(page))
	for {
		switch z.Next() {
		case html.ErrorToken:
			if z.Err() != io.EOF || len(open) > 0 {
				t.Errorf("at the end: %v, not closed %q", z.Err(), open)
			}
			return elements
		case html.StartTagToken:
			token := z.Token()
			if elements = append(elements, token); !slices.Contains(void, token.Data) {
				open = append(open, token.Data)
			}
		case html.SelfClosingTagToken:
			elements = append(elements, z.Token())
		case html.EndTagToken:
			name := z.Token().Data
			if len(open) == 0 || open[len(open)-1] != name {
				t.Fatalf("</%s> where %q are open", name, open)
			}
			open = open[:len(open)-1]
		}
	}
}

// TestHTML_StandsAlone: the page is well-formed, loads nothing from outside, and
// every link and id has a target.
func TestHTML_StandsAlone(t *testing.T) {
	t.Parallel()
	page := rendered(t, report.HTML, append(samples(t), open(t, "soak", soakFixture()))...)
	ids, links := make(map[string]bool), []string{}
	for _, e := range wellFormed(t, page) {
		for _, a := range e.Attr {
			switch {
			case a.Key == "id" && ids[a.Val]:
				t.Errorf("id %q twice", a.Val)
			case a.Key == "id":
				ids[a.Val] = true
			case a.Key == "href" && strings.HasPrefix(a.Val, "#"):
				links = append(links, a.Val[1:])
			case a.Key == "href" && a.Val == "data:,":
			case a.Key == "href" || a.Key == "src" || a.Key == "srcset" || a.Key == "action" || strings.HasPrefix(a.Key, "on"):
				t.Errorf("<%s %s=%q>", e.Data, a.Key, a.Val)
			}
		}
	}
	for _, link := range links {
		if !ids[link] {
			t.Errorf("#%s leads nowhere", link)
		}
	}
	// The only addresses are those in uPlot's licence comment.
	rest := strings.Replace(page, "/*! https://github.com/leeoniya/uPlot (v1.6.32) */", "", 1)
	for _, word := range []string{"https://", "http://", "@import", "url(", "fetch(", "XMLHttpRequest"} {
		if strings.Contains(rest, word) {
			t.Errorf("the page has %q", word)
		}
	}
	for _, notice := range []string{"uPlot", "Leon Sorokin", "MIT", "The above copyright notice and this permission notice"} {
		if !strings.Contains(page, notice) {
			t.Errorf("the page lacks %q", notice)
		}
	}
}

// hostile has markup in every text of a result.
func hostile(text string) *bench.Result {
	r := queueFixture("hostile")
	m := map[string]float64{"messages_per_second": 5, "end_to_end_latency_p99_ms": 2, text: 7}
	r.AddTrial(text, text, m)
	for _, rate := range []float64{10, 20} {
		r.AddTrial(text+map[float64]string{10: " 10/s", 20: " 20/s"}[rate], text,
			map[string]float64{"messages_per_second": rate, "offered_messages_per_second": rate, "latency_p99_ms": 3})
	}
	for i := range r.Rows {
		r.Rows[i].Limiter, r.Rows[i].Note = text, text
		r.Rows[i].Verdicts = []bench.Check{{Name: text, Detail: text}}
	}
	r.Recording.Latencies(text, 0, "end_to_end_", latencies(5e6, 500))
	r.Recording.Latencies(text, 0, text, latencies(5e6, 500))
	seconds(&r.Recording, text, 0, 5, 60)
	r.Scenario, r.Command = text, text
	r.Params[text] = text
	r.Environment.CPU, r.Environment.PostgreSQL.Disk = text, text
	r.Environment.PostgreSQL.Settings[text] = text
	r.Check(text, false, "%s", text)
	r.Thresholds = []bench.Check{{Name: text, Detail: text}}
	return r
}

func TestReports_EscapeEverything(t *testing.T) {
	t.Parallel()
	for _, text := range []string{`</script><img src=x onerror=alert(1)>`, `"><svg onload='alert(1)'>`, "<!--<script>", "=cmd()\n| a | `b`"} {
		r := hostile(text)
		r.Finish()
		f := report.File{Name: text + ".json", Result: r, Beside: []string{text}}
		scripts := 0
		for _, e := range wellFormed(t, rendered(t, report.HTML, f, f)) {
			if e.Data == "img" || e.Data == "svg" && slices.ContainsFunc(e.Attr, func(a html.Attribute) bool { return a.Key == "onload" }) {
				t.Errorf("%q became <%s>", text, e.Data)
			}
			if e.Data == "script" {
				scripts++
			}
		}
		if scripts != 3 {
			t.Errorf("%q: %d scripts, want 3", text, scripts)
		}
		md := rendered(t, report.Markdown, f)
		fence := "```\n" + r.Command + "\n```"
		if strings.ContainsAny(strings.ReplaceAll(strings.Replace(md, fence, "", 1), "> **INVALID**", ""), "<>") && strings.Contains(text, "<") {
			t.Errorf("%q is markup in the Markdown", text)
		}
		if csv := rendered(t, report.CSV, f); strings.Contains(csv, ",=cmd") || strings.HasPrefix(csv, "=") {
			t.Errorf("%q is a formula in the CSV", text)
		}
	}
}

func TestReports_OfLittle(t *testing.T) {
	t.Parallel()
	one := blank("ingest", nil)
	one.AddTrial("auto", "", map[string]float64{"messages_per_second": 1000})
	one.Check("rows equal sent", true, "all")
	unchecked := blank("echo", nil)
	unchecked.AddTrial("tidewire", "", map[string]float64{"messages_per_second": 1000})
	noted := blank("chat-steady", nil)
	noted.AddNote("other", "", "could not be built")
	noted.Check("sent", true, "all")
	for _, c := range []struct {
		name string
		r    *bench.Result
		want []string
	}{
		{"one repeat, nothing beside", one, []string{"one repeat: indicative", "VALID", "1 of 1 rows were measured once"}},
		{"no rows", blank("queue", nil), []string{"Nothing was measured", "INVALID"}},
		{"no checks", unchecked, []string{"INVALID: nothing was checked"}},
		{"no figures", noted, []string{"could not be built"}},
	} {
		f := open(t, "little", c.r)
		page := rendered(t, report.HTML, f)
		wellFormed(t, page)
		for _, text := range []string{page, strings.ReplaceAll(rendered(t, report.Markdown, f), `\`, "")} {
			for _, want := range c.want {
				if !strings.Contains(text, want) {
					t.Errorf("%s: no %q in\n%.3000s", c.name, want, text[strings.Index(text, "Verdict"):])
				}
			}
			for _, heading := range []string{"Percentiles", "Timeline", "Trends", "Offered rate against"} {
				if strings.Contains(text, ">"+heading) {
					t.Errorf("%s: an empty section %q", c.name, heading)
				}
			}
		}
		if csv := rendered(t, report.CSV, f); strings.Count(csv, "\n") != 1+len(c.r.Rows) {
			t.Errorf("%s: CSV\n%s", c.name, csv)
		}
	}
}

// TestPolicy_AllowsThePage: the policy has the hash of each style and script, and the page needs nothing else that it stops.
func TestPolicy_AllowsThePage(t *testing.T) {
	t.Parallel()
	page := rendered(t, report.HTML, samples(t)...)
	for _, e := range wellFormed(t, page) {
		for _, a := range e.Attr {
			if a.Key == "style" || strings.HasPrefix(a.Key, "on") {
				t.Errorf("<%s %s=%q>", e.Data, a.Key, a.Val)
			}
		}
	}
	for _, word := range []string{"new Function", "eval("} {
		if strings.Contains(page, word) {
			t.Errorf("the page has %q", word)
		}
	}
	hashed := 0
	for _, tag := range []string{"style", "script"} {
		for rest := page; ; hashed++ {
			_, after, found := strings.Cut(rest, "<"+tag+">")
			if !found {
				break
			}
			var text string
			text, rest, _ = strings.Cut(after, "</"+tag+">")
			sum := sha256.Sum256([]byte(text))
			if want := base64.StdEncoding.EncodeToString(sum[:]); !strings.Contains(report.Policy(), "'sha256-"+want+"'") {
				t.Errorf("the policy lacks a <%s> of %d bytes", tag, len(text))
			}
		}
	}
	if hashed != 4 {
		t.Errorf("%d styles and scripts, want 4", hashed)
	}
}
