package cli_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tidewire/tidewire/internal/cli"
	"github.com/tidewire/tidewire/stream"
)

// TestStreamGroups lists, moves and removes a group.
func TestStreamGroups(t *testing.T) {
	notShort(t)
	t.Parallel()
	db := migrated(t)
	s := shell{t, db.URL}
	s.run("stream", "create", "orders")
	client, err := stream.Open(t.Context(), db.Pool, stream.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close(t.Context())
	orders, err := client.Lookup(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	for n := range 101 { // more than a page
		if _, err := orders.Group(t.Context(), fmt.Sprint("group-", n), stream.GroupOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	s.run("stream", "publish", "orders", "a", "b", "c")
	s.run("stream", "tail", "orders", "--group", "billing", "--from", "start", "--count", "2")
	for _, command := range []string{"groups", "info"} {
		if out := s.run("stream", command, "orders"); strings.Count(out, "group-") != 101 || !strings.Contains(out, "billing") {
			t.Errorf("%s: %s", command, out)
		}
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
