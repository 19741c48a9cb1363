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
