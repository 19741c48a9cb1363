package cli_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/tidewire/tidewire/internal/cli"
)

func TestEvents_Commands(t *testing.T) {
	t.Parallel()
	s := shell{t, migrated(t).URL}
	if out := s.run("events", "append", "--type", "CourseOffered", "--tag", "course:a,b", "--data", `{"seats":2}`, "--id", "e1"); out != "appended 1, last position 1\n" {
		t.Errorf("append: %q", out)
	}
	if out := s.run("events", "append", "--type", "CourseOffered", "--tag", "course:a,b", "--data", `{"seats":2}`, "--id", "e1"); out != "appended 1, last position 1\n" {
		t.Errorf("append again: %q", out)
	}
	lines := `{"type":"Enrolled","tags":["course:a,b","student:1"],"data":{"n":1}}` + "\n\n" +
		`{"type":"Enrolled","tags":["course:a,b","student:2"],"data_base64":"AAE="}` + "\n"
	if out, _ := s.in(lines, cli.ExitOK, "events", "append"); !strings.HasPrefix(out, "appended 2,") {
		t.Errorf("append of lines: %q", out)
	}
	_, errOut := s.in("", cli.ExitFailure, "events", "append", "--type", "Enrolled", "--tag", "student:1",
		"--unless-type", "Enrolled", "--unless-tag", "course:a,b", "--unless-tag", "student:1")
	if !strings.Contains(errOut, "condition failed") {
		t.Errorf("a condition that fails: %s", errOut)
	}
	out := s.run("events", "query", "--tag", "course:a,b", "--type", "Enrolled", "--type", "CourseOffered", "--backwards", "-n", "2")
	got := strings.Split(strings.TrimSpace(out), "\n")
	var first struct {
		Type   string
		Tags   []string
		Base64 string `json:"data_base64"`
	}
	if err := json.Unmarshal([]byte(got[0]), &first); err != nil || len(got) != 2 || first.Base64 != "AAE=" || first.Tags[1] != "student:2" {
		t.Errorf("query: %s, %v", out, err)
	}
	if out := s.run("events", "tail", "--after", "0", "-n", "3"); strings.Count(out, "\n") != 3 || !strings.Contains(out, `"data":{"seats":2}`) {
		t.Errorf("tail: %s", out)
	}
	if out := s.run("events", "stats", "--type", "Enrolled"); !strings.HasPrefix(out, "events: 2\n") {
		t.Errorf("stats of a query: %q", out)
	}
	if out := s.run("events", "stats"); !strings.Contains(out, "default") {
		t.Errorf("stats: %q", out)
	}
}

func TestEvents_BadInput(t *testing.T) {
	t.Parallel()
	s := shell{t, migrated(t).URL}
	for _, c := range []struct {
		input string
		code  int
		say   string
		args  []string
	}{
		{"no json\n", cli.ExitUsage, "line 1", []string{"append"}},
		{`{"type":"T","data":1,"data_base64":"AA=="}`, cli.ExitUsage, "exclude", []string{"append"}},
		{`{"tags":["a"]}`, cli.ExitUsage, "type", []string{"append"}},
		{"", cli.ExitUsage, "go with --type", []string{"append", "--tag", "a"}},
		{"", cli.ExitUsage, "goes with", []string{"append", "--type", "T", "--after", "3"}},
		{"", cli.ExitUsage, "data", []string{"append", "--type", "T", "--data", "{"}},
		{"", cli.ExitFailure, "not found", []string{"query", "--store", "none"}},
		{"", cli.ExitUsage, "0 or more", []string{"query", "--after=-1"}},
	} {
		_, errOut := s.in(c.input, c.code, append([]string{"events"}, c.args...)...)
		if !strings.Contains(errOut, c.say) {
			t.Errorf("%v: %s, want something about %q", c.args, errOut, c.say)
		}
	}
}

// TestEvents_Stores makes, lists and drops stores.
func TestEvents_Stores(t *testing.T) {
	t.Parallel()
	s := shell{t, migrated(t).URL}
	s.run("events", "create", "orders")
	s.run("events", "create", "orders")
	s.run("events", "create", "bills")
	if out := s.run("events", "list"); out != "bills\norders\n" {
		t.Errorf("list: %q", out)
	}
	s.in("", cli.ExitUsage, "events", "drop", "orders")
	s.in("", cli.ExitUsage, "events", "create", "tidewire.own")
	s.run("events", "drop", "orders", "--yes")
	_, errOut := s.in("", cli.ExitFailure, "events", "drop", "orders", "--yes")
	if !strings.Contains(errOut, "event store") {
		t.Errorf("drop again: %s", errOut)
	}
}
