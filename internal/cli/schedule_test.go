package cli_test

import (
	"strings"
	"testing"

	"github.com/tidewire/tidewire/internal/cli"
	"github.com/tidewire/tidewire/internal/testkit"
)

// TestSchedule_Commands: a running server writes the messages of a schedule that was created while it runs.
func TestSchedule_Commands(t *testing.T) {
	t.Parallel()
	s := shell{t, migrated(t).URL}
	s.run("queue", "create", "jobs")
	serve(t, "--database-url", s.url)
	out := s.run("schedule", "create", "tick", "--cron", "@every 1s", "--queue", "jobs", "--payload", "hello", "--header", "a=b", "--key", "k")
	if !strings.HasPrefix(out, "schedule tick: next due 2") {
		t.Errorf("created: %q", out)
	}
	testkit.Eventually(t, "a message is written", func() bool {
		return strings.Contains(s.run("queue", "peek", "jobs"), `"tidewire_schedule":"tick"`)
	})
	s.run("schedule", "pause", "tick")
	if list := s.run("schedule", "list"); !strings.Contains(list, "paused") || !strings.Contains(list, "queue jobs") || !strings.Contains(list, "@every 1s UTC") {
		t.Errorf("%s", list)
	}
	s.in("", cli.ExitFailure, "schedule", "next", "tick")
	s.run("schedule", "resume", "tick")
	if next := s.run("schedule", "next", "tick", "-n", "3"); strings.Count(next, "\n") != 3 {
		t.Errorf("next: %q", next)
	}
	s.in("from the input", cli.ExitOK, "schedule", "create", "once", "--at", "2099-12-24T18:00:00+01:00", "--queue", "jobs", "--payload", "-")
	if next := s.run("schedule", "next", "once"); next != "2099-12-24T17:00:00Z\n" {
		t.Errorf("next of once: %q", next)
	}
	s.run("schedule", "drop", "once")
	_, errOut := s.in("", cli.ExitFailure, "schedule", "drop", "once")
	if !strings.Contains(errOut, "tidewire schedule list") {
		t.Errorf("dropped twice: %q", errOut)
	}
}

// TestSchedule_Errors: each error names the field.
func TestSchedule_Errors(t *testing.T) {
	t.Parallel()
	s := shell{t, migrated(t).URL}
	for want, args := range map[string][]string{
		"cron: ":      {"--cron", "often", "--queue", "jobs"},
		"time_zone: ": {"--cron", "0 3 * * *", "--time-zone", "Mars", "--queue", "jobs"},
		"queue: ":     {"--cron", "0 3 * * *", "--queue", "nowhere"},
		"stream: ":    {"--cron", "0 3 * * *", "--stream", "nowhere"},
		"--at ":       {"--at", "tomorrow", "--queue", "jobs"},
		"catch_up: ":  {"--cron", "0 3 * * *", "--queue", "jobs", "--catch-up", "some"},
	} {
		_, errOut := s.in("", cli.ExitUsage, append([]string{"schedule", "create", "n"}, args...)...)
		if !strings.Contains(errOut, want) {
			t.Errorf("%v: %q, want %q", args, errOut, want)
		}
	}
	next := s.run("schedule", "next", "--cron", "30 2 * * *", "--time-zone", "Europe/Berlin")
	if strings.Count(next, "\n") != 5 || !strings.Contains(next, ":00+0") {
		t.Errorf("next: %q", next)
	}
}
