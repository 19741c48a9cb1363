package cli_test

import (
	"encoding/json"
	"errors"
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
		{"ordered --priorities 3", "the queue has 4 partitions, no priorities; you asked for no partitions, 3 priorities"},
		{"ordered", "the queue has 4 partitions; you asked for no partitions"},
		{"plain", "the queue has 3 attempts, a longest retry pause of 1m0s; you asked for 10 attempts, a longest retry pause of 5m0s"},
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

// TestQueueAlter changes only what is given.
func TestQueueAlter(t *testing.T) {
	t.Parallel()
	s := shell{t, migrated(t).URL}
	s.run("queue", "create", "jobs", "--priorities", "2", "--retry-max", "1m")
	if out := s.run("queue", "alter", "jobs", "--max-attempts", "3", "--retry-min", "500ms"); out != "max attempts: 3\nretry min: 500ms\nretry max: 1m0s\n" {
		t.Errorf("%s", out)
	}
	s.run("queue", "create", "jobs", "--priorities", "2", "--retry-max", "1m", "--max-attempts", "3", "--retry-min", "500ms")
	for _, bad := range []string{"", "--max-attempts -1", "--retry-min 9000h"} {
		s.in("", cli.ExitUsage, append([]string{"queue", "alter", "jobs"}, strings.Fields(bad)...)...)
	}
	s.in("", cli.ExitFailure, "queue", "alter", "none", "--max-attempts", "3")
	for _, bad := range []string{"peek jobs --key a", "redrive jobs --key a --position 1", "purge-dead jobs", "drop jobs", "create both --priorities 2 --partitions 2"} {
		s.in("", cli.ExitUsage, append([]string{"queue"}, strings.Fields(bad)...)...)
	}
	s.in("", cli.ExitFailure, "queue", "stats", "none")
	if out := s.run("queue", "list"); !strings.Contains(out, "jobs") || strings.Contains(out, "jobs/0") {
		t.Errorf("list: %s", out)
	}
}

// TestQueueEnqueue_Receive: what is enqueued is received once, in order, with its key and headers.
func TestQueueEnqueue_Receive(t *testing.T) {
	notShort(t)
	t.Parallel()
	s := shell{t, migrated(t).URL}
	s.run("queue", "create", "jobs")
	if out := s.run("queue", "enqueue", "jobs", "--key", "k", "--header", "a=b", "one", "two"); out != "enqueued 2, last position 2\n" {
		t.Errorf("enqueue: %q", out)
	}
	if out, _ := s.in("three\r\n\nlast", cli.ExitOK, "queue", "enqueue", "jobs"); out != "enqueued 3, last position 5\n" {
		t.Errorf("enqueue of lines: %q", out)
	}
	var first struct {
		Position int64
		Key      string
		Headers  map[string]string
		Payload  string
		Attempt  int
	}
	out := s.run("queue", "receive", "jobs", "--no-ack")
	if err := json.Unmarshal([]byte(out), &first); err != nil || first.Position != 1 || first.Key != "k" || first.Headers["a"] != "b" || first.Payload != "one" || first.Attempt != 1 {
		t.Errorf("receive: %q, %v", out, err)
	}
	if out := s.run("queue", "receive", "jobs"); !strings.Contains(out, `"payload":"one"`) || !strings.Contains(out, `"attempt":2`) {
		t.Errorf("what was not acknowledged: %q", out)
	}
	if out := s.run("queue", "receive", "jobs", "--raw", "--max", "3"); out != "two\nthree\n\n" {
		t.Errorf("three of them: %q", out)
	}
	if out := s.run("queue", "receive", "jobs", "--raw", "--max", "0", "--wait", "20s"); out != "last\n" {
		t.Errorf("the rest: %q", out)
	}
	if out := s.run("queue", "receive", "jobs", "--wait", "100ms"); out != "" {
		t.Errorf("of an empty queue: %q", out)
	}
	if out := s.run("queue", "stats", "jobs", "--over", "0"); !strings.Contains(out, "ready: 0\nleased: 0\ndelayed: 0\ndead: 0\n") {
		t.Errorf("%s", out)
	}
	s.in("", cli.ExitFailure, "queue", "receive", "none")
	s.in("", cli.ExitFailure, "queue", "enqueue", "none", "x")
	s.in("", cli.ExitUsage, "queue", "receive", "jobs", "--max", "-1")
	s.in("", cli.ExitUsage, "queue", "receive", "jobs", "--max", "0", "--no-ack")
}

// TestQueueEnqueue_Flags: delay, priority and unique key.
func TestQueueEnqueue_Flags(t *testing.T) {
	t.Parallel()
	s := shell{t, migrated(t).URL}
	s.run("queue", "create", "ranked", "--priorities", "3")
	s.run("queue", "enqueue", "ranked", "low")
	s.run("queue", "enqueue", "ranked", "--priority", "2", "high")
	if out := s.run("queue", "receive", "ranked", "--max", "2"); strings.Index(out, "high") > strings.Index(out, "low") || !strings.Contains(out, `"priority":2`) {
		t.Errorf("by priority: %s", out)
	}
	s.in("", cli.ExitUsage, "queue", "enqueue", "ranked", "--priority", "3", "x")
	s.run("queue", "create", "jobs")
	s.run("queue", "enqueue", "jobs", "--delay", "1h", "later")
	if out := s.run("queue", "receive", "jobs", "--wait", "500ms"); out != "" {
		t.Errorf("before it is due: %s", out)
	}
	s.in("", cli.ExitUsage, "queue", "enqueue", "jobs", "--unique-key", "u", "a", "b")
	s.in("", cli.ExitUsage, "queue", "enqueue", "jobs", "--unique-key", "u", "--unique-period", "1h", "a")
	stored := 0
	for range 3 { // a period may end in between
		out := s.run("queue", "enqueue", "jobs", "--unique-key", "u", "once")
		if strings.HasPrefix(out, "enqueued 1,") {
			stored++
		} else if !strings.HasPrefix(out, "enqueued 0, duplicate of position ") {
			t.Errorf("%s", out)
		}
	}
	if stored < 1 || stored > 2 {
		t.Errorf("stored %d times", stored)
	}
}

// broken is an output that nobody reads.
type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("closed") }

// TestQueueReceive_NotPrinted: a message that could not be printed is not acknowledged.
func TestQueueReceive_NotPrinted(t *testing.T) {
	t.Parallel()
	s := shell{t, migrated(t).URL}
	s.run("queue", "create", "jobs")
	s.run("queue", "enqueue", "jobs", "x")
	code := cli.Run(t.Context(), cli.Env{
		Args: []string{"queue", "receive", "jobs", "--database-url", s.url}, Getenv: func(string) string { return "" },
		In: strings.NewReader(""), Out: broken{}, Err: &strings.Builder{},
	})
	if code == cli.ExitOK {
		t.Error("it says that it worked")
	}
	if out := s.run("queue", "receive", "jobs", "--raw"); out != "x\n" {
		t.Errorf("received again: %q", out)
	}
}
