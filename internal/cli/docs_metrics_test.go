package cli_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tidewire/tidewire/internal/pgtest"
)

var (
	metricHelp = regexp.MustCompile(`(?m)^# HELP (tidewire_\w+) (.*)$`)
	metricType = regexp.MustCompile(`(?m)^# TYPE (tidewire_\w+) (\w+)$`)
	metricRow  = regexp.MustCompile("(?m)^\\| `(tidewire_\\w+)(?:\\{\\w+\\})?` \\| (\\w+) \\| (.*) \\|$")
)

// TestDocuments_Metrics: docs/reference/metrics.md has each metric of a server, with its type and
// its help text, and no other.
func TestDocuments_Metrics(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/reference/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := make(map[string][]string)
	for _, m := range metricRow.FindAllStringSubmatch(string(text), -1) {
		documented[m[1]] = m[2:]
	}
	db := pgtest.Open(t)
	// The primary is not a standby, but the metrics of reads exist anyway.
	server := serve(t, "--database-url", db.URL, "--read-url", db.URL, "--stored-rooms", "*", "--presence-stream", "presence",
		"--cluster", "docs", "--cluster-listen", "127.0.0.1:0")
	_, served := request(t, "GET", server.Addr, "/metrics", "")
	types := make(map[string]string)
	for _, m := range metricType.FindAllStringSubmatch(served, -1) {
		types[m[1]] = m[2]
	}
	var names []string
	for _, m := range metricHelp.FindAllStringSubmatch(served, -1) {
		name, help := m[1], m[2]
		names = append(names, name)
		if row := documented[name]; row == nil || row[0] != types[name] || !strings.HasPrefix(row[1], help) {
			t.Errorf("docs/reference/metrics.md has %q for %s, want a row\n| `%s` | %s | %s |", row, name, name, types[name], help)
		}
	}
	if len(names) == 0 {
		t.Fatal("the server has no metrics")
	}
	for name := range documented {
		if !slices.Contains(names, name) {
			t.Errorf("docs/reference/metrics.md has %s, which no server has", name)
		}
	}
}
