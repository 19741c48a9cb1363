package cli_test

import (
	"strings"
	"testing"

	"github.com/tidewire/tidewire/internal/cli"
)

// TestStreamGroups lists, moves and removes a group.
func TestStreamGroups(t *testing.T) {
	t.Parallel()
	s := shell{t, migrated(t).URL}
	s.run("stream", "create", "orders")
	s.run("stream", "publish", "orders", "a", "b", "c")
	s.run("stream", "tail", "orders", "--group", "billing", "--from", "start", "--count", "2")
	if out := s.run("stream", "groups", "orders"); !strings.Contains(out, "billing") {
		t.Errorf("%s", out)
	}
	for _, c := range []struct{ args, want string }{
		{"--from end", "offset 3\n"}, {"--after 1", "offset 1\n"}, {"--since 1h", "offset 0\n"}, {"--from start", "offset 0\n"}, {"--after 2", "offset 2\n"},
	} {
		if out := s.run(append([]string{"stream", "seek", "orders", "billing"}, strings.Fields(c.args)...)...); out != c.want {
			t.Errorf("%s: %s, want %s", c.args, out, c.want)
		}
	}
	if out := s.run("stream", "tail", "orders", "--group", "billing", "--count", "1", "--raw"); out != "c\n" {
		t.Errorf("after the seek: %s", out)
	}
	s.in("", cli.ExitUsage, "stream", "seek", "orders", "billing")
	s.in("", cli.ExitFailure, "stream", "seek", "orders", "billing", "--after", "9")
	s.in("", cli.ExitFailure, "stream", "seek", "orders", "none", "--from", "end")
	s.in("", cli.ExitUsage, "stream", "drop-group", "orders", "billing")
	s.run("stream", "drop-group", "orders", "billing", "--yes")
	if out := s.run("stream", "groups", "orders"); strings.Contains(out, "billing") {
		t.Errorf("%s", out)
	}
	s.run("queue", "create", "jobs")
	s.in("", cli.ExitUsage, "stream", "seek", "jobs", "billing", "--from", "end")
}
