package cli_test

import (
	"strings"
	"testing"

	"github.com/tidewire/tidewire/internal/cli"
)

// TestQueueCreate_SaysWhatDiffers from the existing queue, in words.
func TestQueueCreate_SaysWhatDiffers(t *testing.T) {
	t.Parallel()
	s := shell{t, migrated(t).URL}
	s.run("queue", "create", "ordered", "--partitions", "4")
	s.run("queue", "create", "ordered", "--partitions", "4")
	s.run("queue", "create", "plain", "--max-attempts", "3", "--retry-max", "1m")
	for _, c := range []struct{ args, want string }{
		{"ordered --partitions 2", "the queue has 4 partitions; you asked for 2 partitions"},
		{"ordered --partitions 1", "the queue has 4 partitions; you asked for 1 partition"},
		{"ordered --priorities 3", "the queue has 4 partitions, no priorities; you asked for no partitions, 3 priorities"},
		{"ordered", "the queue has 4 partitions; you asked for no partitions"},
		{"plain", "the queue has 3 attempts, a longest retry pause of 1m0s; you asked for 10 attempts, a longest retry pause of 5m0s"},
		{"plain --partitions 2 --max-attempts 3 --retry-max 1m", "the queue has no partitions; you asked for 2 partitions"},
		{"plain --max-attempts 3 --retry-max 1m --retry-min 2s", "the queue has a first retry pause of 1s; you asked for a first retry pause of 2s"},
	} {
		_, errOut := s.in("", cli.ExitUsage, append([]string{"queue", "create"}, strings.Fields(c.args)...)...)
		if !strings.Contains(errOut, "queue: exists with other options: "+c.want+": drop it first") {
			t.Errorf("%s: %s, want %s", c.args, errOut, c.want)
		}
	}
}

// TestQueueCreate_OfAStreamInUse says what prevents it, without a SQLSTATE.
func TestQueueCreate_OfAStreamInUse(t *testing.T) {
	t.Parallel()
	s := shell{t, migrated(t).URL}
	s.run("stream", "create", "kept")
	s.run("stream", "retain", "kept", "--max-age", "1h")
	_, errOut := s.in("", cli.ExitUsage, "queue", "create", "kept")
	if !strings.Contains(errOut, "has a retention policy") || strings.Contains(errOut, "SQLSTATE") {
		t.Errorf("%s", errOut)
	}
}
