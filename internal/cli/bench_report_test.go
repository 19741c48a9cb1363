package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidewire/tidewire/internal/bench"
	"github.com/tidewire/tidewire/internal/cli"
)

// resultFile writes a small valid result.
func resultFile(t *testing.T, dir string) string {
	t.Helper()
	r := bench.NewResult("queue", map[string]any{"payload": 1024})
	r.AddTrial("lease", "", map[string]float64{"messages_per_second": 15_600, "end_to_end_latency_p99_ms": 7.5})
	r.Check("every message read once", true, "all")
	r.Finish()
	path := filepath.Join(dir, "result.json")
	if err := r.Write(path); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestBenchReport_Formats(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, page := resultFile(t, dir), filepath.Join(dir, "page.html")
	code, out, errOut := run(t, nil, "bench", "report", file, "-o", page)
	if code != cli.ExitOK || !strings.Contains(out, "page.html (") || !strings.Contains(out, "KiB)") {
		t.Errorf("exit code %d\n%s%s", code, out, errOut)
	}
	if data, err := os.ReadFile(page); err != nil || !strings.Contains(string(data), "15,600") {
		t.Errorf("the page lacks its figure: %v", err)
	}
	for format, want := range map[string]string{"--markdown": "| lease |", "--csv": "result.json,queue,true,lease,messages_per_second,15600,,,1"} {
		if code, out, errOut := run(t, nil, "bench", "report", file, format); code != cli.ExitOK || !strings.Contains(out, want) {
			t.Errorf("%s: exit code %d, no %q\n%s%s", format, code, want, out, errOut)
		}
		path := filepath.Join(dir, "out"+format)
		code, _, errOut := run(t, nil, "bench", "report", file, format, "-o", path)
		if data, err := os.ReadFile(path); code != cli.ExitOK || err != nil || !strings.Contains(string(data), want) {
			t.Errorf("%s -o: exit code %d, %v\n%s%s", format, code, err, data, errOut)
		}
	}
}

func TestBenchReport_BadInput(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	good := resultFile(t, dir)
	written := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	written("torn.series.jsonl", `{"row":`)
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"no file":        {[]string{filepath.Join(dir, "none.json")}, "give the JSON file"},
		"no files":       {nil, "file"},
		"not a result":   {[]string{written("text.json", "hello")}, "give the JSON file"},
		"other schema":   {[]string{written("other.json", `{"schema": 9}`)}, "schema is 9"},
		"other JSON":     {[]string{written("list.json", `{"rows": []}`)}, "schema is 0"},
		"torn series":    {[]string{written("torn.json", `{"schema": 1}`)}, "torn.series.jsonl"},
		"two formats":    {[]string{good, "--csv", "--markdown"}, "markdown"},
		"itself":         {[]string{good, "-o", good}, "choose another name"},
		"no such folder": {[]string{good, "-o", filepath.Join(dir, "none", "page.html")}, "choose another place"},
	} {
		code, out, errOut := run(t, nil, append([]string{"bench", "report"}, c.args...)...)
		if code != cli.ExitUsage || !strings.Contains(errOut, c.want) {
			t.Errorf("%s: exit code %d, no %q\n%s%s", name, code, c.want, out, errOut)
		}
	}
	if _, err := bench.Read(good); err != nil {
		t.Errorf("the result was overwritten: %v", err)
	}
}
