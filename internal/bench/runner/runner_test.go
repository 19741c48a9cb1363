package runner_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/bench"
	"github.com/tidewire/tidewire/internal/bench/runner"
	"github.com/tidewire/tidewire/internal/gateway"
	"github.com/tidewire/tidewire/internal/testkit"
)

// result writes a result with repeats around a rate.
func result(t *testing.T, path, scenario string, rate float64, started time.Time) {
	t.Helper()
	r := bench.NewResult(scenario, map[string]any{"payload": 100})
	r.Started = started
	for _, factor := range []float64{0.98, 0.99, 1, 1.01, 1.02} {
		r.AddTrial("auto", "", map[string]float64{"messages_per_second": rate * factor, "lost": 0})
	}
	r.Check("rows", true, "")
	r.Finish()
	if err := r.Write(path); err != nil {
		t.Fatal(err)
	}
}

// fake is a program that is a shell script, in place of tidewire.
func fake(t *testing.T, script string) runner.Config {
	t.Helper()
	path := filepath.Join(t.TempDir(), "fake")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	return runner.Config{Dir: t.TempDir(), Program: path, Starts: true, Scenarios: []runner.Scenario{{Name: "queue", Args: []string{"bench", "queue", "--quick"}}},
		Getenv: func(name string) string {
			return map[string]string{"PATH": os.Getenv("PATH"), "DATABASE_URL": "postgres://secret", "PGPASSWORD": "secret", "TIDEWIRE_DATABASE_URL": "secret"}[name]
		}}
}

// ended waits until the run has ended.
func ended(t *testing.T, r *runner.Runner) *gateway.BenchRun {
	t.Helper()
	testkit.Eventually(t, "the run ends", func() bool { return r.Run().State != gateway.BenchRunning })
	return r.Run()
}

func TestFolder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	day := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	result(t, filepath.Join(dir, "old.json"), "ingest", 1000, day)
	result(t, filepath.Join(dir, "all-1", "queue.json"), "queue", 2000, day.Add(time.Hour))
	result(t, filepath.Join(dir, "a", "b", "c", "deep.json"), "queue", 1, day)
	secret := filepath.Join(t.TempDir(), "secret.json")
	result(t, secret, "queue", 1, day)
	for name, text := range map[string]string{"broken.json": "{", "package.json": `{"name":"x"}`, "old.hlog": "", "notes.txt": "x"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(secret, filepath.Join(dir, "link.json")); err != nil {
		t.Fatal(err)
	}
	r := runner.New(t.Context(), runner.Config{Dir: dir})
	all, folder, err := r.Results()
	if err != nil || folder != dir || len(all) != 2 || all[0].Result != "all-1/queue" || all[1].Result != "old" || all[0].Figure != "2,000 messages/s" || all[0].Row != "auto" || !all[0].Valid {
		t.Fatalf("%+v %v", all, err)
	}
	for _, name := range []string{"../secret", "link", "old.json", "", "a/b/c/deep", "broken", secret, "./old"} {
		if _, _, err := r.Report([]string{name}); !errors.Is(err, gateway.ErrNoBenchResult) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := r.Compare("old", name); !errors.Is(err, gateway.ErrNoBenchResult) {
			t.Errorf("%s: %v", name, err)
		}
	}
	page, policy, err := r.Report([]string{"old", "all-1/queue"})
	if err != nil || !strings.Contains(string(page), "Benchmark: ingest, queue") || !strings.Contains(policy, "sandbox allow-scripts") || strings.Contains(policy, "unsafe") {
		t.Errorf("%.200s %s %v", page, policy, err)
	}
	// A file that has changed is read again, and one that is gone is forgotten.
	result(t, filepath.Join(dir, "old.json"), "ingest", 333_333, day)
	os.RemoveAll(filepath.Join(dir, "all-1"))
	if all, _, err := r.Results(); err != nil || len(all) != 1 || all[0].Figure != "333,333 messages/s" {
		t.Errorf("%+v %v", all, err)
	}
	if all, _, err := runner.New(t.Context(), runner.Config{Dir: filepath.Join(dir, "none")}).Results(); err != nil || all == nil || len(all) != 0 {
		t.Errorf("no folder: %v %v", all, err)
	}
}

func TestCompare(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	result(t, filepath.Join(dir, "a.json"), "ingest", 1000, time.Now())
	result(t, filepath.Join(dir, "b.json"), "ingest", 2000, time.Now())
	got, err := runner.New(t.Context(), runner.Config{Dir: dir}).Compare("a", "b")
	if err != nil || len(got.Differences) != 0 || len(got.Missing) != 0 || len(got.Changes) != 2 {
		t.Fatalf("%+v %v", got, err)
	}
	if c := got.Changes[1]; c.Metric != "messages_per_second" || !c.Significant || !c.Main || c.Before.Median != 1000 || c.After.Median != 2000 || c.Before.Low == nil || c.P == nil {
		t.Errorf("%+v", c)
	}
}

// TestRun: a child's lines, steps, ticks and results are told. It gets fixed arguments and no secret.
func TestRun(t *testing.T) {
	t.Parallel()
	source := filepath.Join(t.TempDir(), "r.json")
	result(t, source, "queue", 5, time.Now())
	cfg := fake(t, fmt.Sprintf(`echo '{"line":"round 1"}' >&2
echo '{"step":{"row":"lease","number":1,"of":3,"phase":"measured"}}' >&2
echo '{"tick":{"row":"lease","phase":"measured","seconds":1,"metrics":{"messages_per_second":7,"deliveries_per_second":9,"latency_p50_ms":2,"server_cpu_cores":0.5}}}' >&2
echo "$@"; env | grep -c secret; echo '{broken'; printf '\377\n'
for last; do true; done
cp %s "$last"`, source))
	r := runner.New(t.Context(), cfg)
	defer r.Close()
	if r.Run() != nil || r.Stop() != nil {
		t.Error("a run before there was one")
	}
	if _, err := r.Start("queue --out x"); !errors.Is(err, gateway.ErrNoBenchScenario) {
		t.Errorf("an unknown scenario: %v", err)
	}
	if _, err := r.Start("queue"); err != nil {
		t.Fatal(err)
	}
	run := ended(t, r)
	if run.State != gateway.BenchDone || len(run.Results) != 1 || !strings.HasPrefix(run.Results[0], "queue-") || run.Step != nil || run.Ended.IsZero() {
		t.Errorf("%+v", run)
	}
	want := []string{"round 1", "bench queue --quick --out " + filepath.Join(cfg.Dir, run.Results[0]+".json"), "0", "{broken", "�"}
	if strings.Join(run.Lines, "\n") != strings.Join(want, "\n") {
		t.Errorf("%q, want %q", run.Lines, want)
	}
	if len(run.Points) != 1 || run.Points[0].Rate != 9 || *run.Points[0].P50 != 2 || run.Points[0].P99 != nil || run.Points[0].Cores != 0.5 {
		t.Errorf("%+v", run.Points)
	}
}

func TestRun_Fails(t *testing.T) {
	t.Parallel()
	r := runner.New(t.Context(), fake(t, "echo no PostgreSQL >&2; exit 7"))
	defer r.Close()
	if _, err := r.Start("queue"); err != nil {
		t.Fatal(err)
	}
	if run := ended(t, r); run.State != gateway.BenchFailed || run.Lines[0] != "no PostgreSQL" {
		t.Errorf("%+v", run)
	}
	cfg := fake(t, "")
	cfg.Program += "-missing"
	r = runner.New(t.Context(), cfg)
	defer r.Close()
	if _, err := r.Start("queue"); err == nil {
		t.Error("a program that is not there was started")
	}
}

// TestRun_OneAtATime: a second one is refused; a stop closes the child's input, and the next one can start after it.
func TestRun_OneAtATime(t *testing.T) {
	t.Parallel()
	r := runner.New(t.Context(), fake(t, "cat; echo stopping"))
	defer r.Close()
	for range 2 {
		if _, err := r.Start("queue"); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Start("queue"); !errors.Is(err, gateway.ErrBenchBusy) {
			t.Errorf("a second one: %v", err)
		}
		r.Stop()
		if run := ended(t, r); run.State != gateway.BenchStopped || len(run.Lines) != 1 {
			t.Errorf("%+v", run)
		}
	}
}

// TestRun_EndsWithTheServer: also a child that does not listen, with its own children.
func TestRun_EndsWithTheServer(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cfg := fake(t, "echo began; sleep 600")
	cfg.Grace = 100 * time.Millisecond
	r := runner.New(ctx, cfg)
	if _, err := r.Start("queue"); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "the child has begun", func() bool { return len(r.Run().Lines) > 0 })
	cancel()
	r.Close()
	if run := r.Run(); run.State != gateway.BenchStopped {
		t.Errorf("%+v", run)
	}
	if _, err := r.Start("queue"); !errors.Is(err, gateway.ErrBenchBusy) {
		t.Errorf("a server that has stopped starts one: %v", err)
	}
	cfg.Starts = false
	if _, err := runner.New(t.Context(), cfg).Start("queue"); !errors.Is(err, gateway.ErrBenchOff) {
		t.Errorf("a server that may not: %v", err)
	}
}
