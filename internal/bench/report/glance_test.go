package report

import (
	"maps"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/tidewire/tidewire/internal/bench"
)

func fileOf(r *bench.Result) File {
	r.Finish()
	return File{Name: r.Scenario + ".json", Result: r, alias: r.Scenario + ".json"}
}

func ingestResult() *bench.Result {
	r := &bench.Result{Scenario: "ingest", Environment: bench.Environment{CPU: "Some CPU", Cores: 2,
		PostgreSQL: &bench.PostgreSQL{Version: "18.3 (Some OS)", Durability: map[string]string{"fsync": "on"}}}}
	for name, rate := range map[string]float64{"raw COPY": 2000, "naive": 10, "auto": 1500} {
		r.AddTrial(name, "", map[string]float64{"messages_per_second": rate, "seconds": 10, "server_cpu_seconds": 5, "postgres_cpu_seconds": 10,
			"latency_p50_ms": 1, "latency_p99_ms": 10, "latency_p999_ms": 100, "share_of_raw_copy": rate / 2000})
	}
	r.Row("auto").Limiter = bench.LimitWaiting
	r.Check("rows", true, "")
	return r
}

func tileNamed(t *testing.T, all []tile, name string) tile {
	t.Helper()
	for _, one := range all {
		if one.Name == name {
			return one
		}
	}
	t.Fatalf("no tile %q in %+v", name, all)
	return tile{}
}

func TestTiles_AnswerTheQuestions(t *testing.T) {
	t.Parallel()
	all := tilesOf(fileOf(ingestResult()).Result)
	for name, want := range map[string][2]string{
		"Valid": {"yes", "1 of 1 checks hold"}, "Fastest": {"1,500", "auto; one repeat"}, "Against naive": {"150", "75 % of raw COPY"},
		"99 % take at most": {"10", "p50 1 ms"}, "Limited by": {bench.LimitWaiting, "CPU was left"}, "Measured on": {"2", "Some CPU, PostgreSQL 18.3, fsync on"},
	} {
		if got := tileNamed(t, all, name); got.Value != want[0] || !strings.Contains(got.Note, want[1]) {
			t.Errorf("%s: %+v, want %q", name, got, want)
		}
	}
	bad := ingestResult()
	bad.Check("lost", false, "1 lost")
	if got := tileNamed(t, tilesOf(fileOf(bad).Result), "Valid"); got.Value != "no" || !got.Bad {
		t.Errorf("%+v", got)
	}
	nothing := &bench.Result{Scenario: "queue"}
	if all := tilesOf(nothing); len(all) != 2 || !strings.Contains(all[0].Note, "Nothing was measured") {
		t.Errorf("%+v", all)
	}
}

func TestTiles_KnowEveryLimit(t *testing.T) {
	t.Parallel()
	for _, name := range []string{bench.LimitGenerator, bench.LimitServer, bench.LimitPostgreSQL, bench.LimitRate, bench.LimitWaiting} {
		if limits[name] == "" {
			t.Errorf("no meaning of the limit %q", name)
		}
	}
}

func TestPictures(t *testing.T) {
	t.Parallel()
	all := pictures([]File{fileOf(ingestResult())})
	if len(all) != 3 {
		t.Fatalf("%d pictures", len(all))
	}
	for _, b := range all[0].Rows {
		switch part := b.Parts[0]; {
		case b.Name == "auto" && (!b.Best || part.Style != 0 || part.Width != 75 || b.Note != "limited by "+bench.LimitWaiting),
			b.Name == "raw COPY" && (part.Style != grey || part.Width != 100 || b.Best),
			b.Name == "naive" && b.Note != "0.667 % of the best":
			t.Errorf("%+v", b)
		}
	}
	// 1 to 100 ms on a logarithmic axis: the p99 is in the middle.
	if b := all[1].Rows[0]; len(b.Dots) != 3 || b.Dots[1].At < 49.9 || b.Dots[1].At > 50.1 || b.Value != "1 · 10 · 100" {
		t.Errorf("%+v", b)
	}
	// 0.5 cores and 1 core, of 2.
	if b := all[2].Rows[0]; len(b.Parts) != 2 || b.Parts[1].At != 25 || b.Parts[1].Width != 50 || b.Value != "1.50" {
		t.Errorf("%+v", b)
	}
}

// TestPictures_CompareNoDifferentLoads: more clients are not better, and other operations are not slower.
func TestPictures_CompareNoDifferentLoads(t *testing.T) {
	t.Parallel()
	chat := &bench.Result{Scenario: "chat-saturation"}
	for name, rate := range map[string]float64{"tidewire 10 clients": 10, "tidewire 20 clients": 20} {
		chat.AddTrial(name, "", map[string]float64{"deliveries_per_second": rate})
		chat.Row(name).Labels = map[string]string{"target": "tidewire"}
	}
	events := &bench.Result{Scenario: "events"}
	for _, row := range []struct {
		name string
		rate float64
	}{{"append/c1", 10}, {"append/c9", 90}, {"query/c1", 1000}} { // the rows of an operation follow each other
		events.AddTrial(row.name, "", map[string]float64{"calls_per_second": row.rate})
	}
	for _, r := range []*bench.Result{chat, events} {
		p := pictures([]File{fileOf(r)})[0]
		if len(p.Rows) != 2 {
			t.Errorf("%s: %+v", r.Scenario, p.Rows)
		}
		for _, b := range p.Rows {
			if b.Note != "" {
				t.Errorf("%s: %+v", r.Scenario, b)
			}
		}
	}
}

func TestPictures_ShowTheBestOfMany(t *testing.T) {
	t.Parallel()
	r := &bench.Result{Scenario: "queue"}
	for i := range 3 * mostBars {
		r.AddTrial(strings.Repeat("x", i+1), "", map[string]float64{"messages_per_second": float64(i + 1)})
	}
	p := pictures([]File{fileOf(r)})[0]
	if len(p.Rows) != mostBars || p.Rows[0].Value != "25" {
		t.Errorf("%d rows, from %+v", len(p.Rows), p.Rows[0])
	}
}

var colour = regexp.MustCompile(`(--[a-z0-9-]+): *([^;]+);`)

// colours returns the variables of both themes of a style sheet.
func colours(t *testing.T, css string) [2]map[string]string {
	t.Helper()
	light, dark, found := strings.Cut(css, "prefers-color-scheme: dark")
	if !found {
		t.Fatal("no dark theme")
	}
	all := [2]map[string]string{{}, {}}
	for i, text := range []string{light, dark} {
		block, _, _ := strings.Cut(text[strings.Index(text, ":root {"):], "}")
		for _, m := range colour.FindAllStringSubmatch(block, -1) {
			all[i][m[1]] = m[2]
		}
	}
	return all
}

// TestStyle_IsThatOfTheConsole: what both style sheets name has the same colour.
func TestStyle_IsThatOfTheConsole(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("../../../console/src/style.css")
	if err != nil {
		t.Fatal(err)
	}
	console, page := colours(t, string(data)), colours(t, asset("report.css"))
	for i := range page {
		same := 0
		for name := range maps.Keys(page[i]) {
			if other, ok := console[i][name]; ok {
				if same++; other != page[i][name] {
					t.Errorf("%s is %s, in the console %s", name, page[i][name], other)
				}
			}
		}
		if same < 18 {
			t.Errorf("only %d colours in common", same)
		}
	}
}
