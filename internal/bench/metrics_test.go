package bench

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// documentedMetric is a name in the first column of the tables of docs/reference/results.md, in which
// an ellipsis stands for any part.
var documentedMetric = regexp.MustCompile("`([a-z0-9_…]+)`")

// TestMetrics_AreDocumented: what a threshold may name is in docs/reference/results.md.
func TestMetrics_AreDocumented(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/reference/results.md")
	if err != nil {
		t.Fatal(err)
	}
	var forms []string
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "| `") {
			continue
		}
		names, _, _ := strings.Cut(line[1:], "|")
		for _, m := range documentedMetric.FindAllStringSubmatch(names, -1) {
			forms = append(forms, strings.ReplaceAll(m[1], "…", "[a-z0-9_]+"))
		}
	}
	documented := regexp.MustCompile("^(" + strings.Join(forms, "|") + ")$")
	for scenario := range measured {
		for _, name := range Metrics(scenario) {
			if !documented.MatchString(name) {
				t.Errorf("%s: docs/reference/results.md lacks %s", scenario, name)
			}
		}
	}
}
