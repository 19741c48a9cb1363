package gateway_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/gateway"
)

// cannedBench has one result, and starts one scenario, which runs until it is stopped.
type cannedBench struct {
	mu  sync.Mutex
	run *gateway.BenchRun
}

var benchTime = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func (b *cannedBench) Results() ([]gateway.BenchResult, string, error) {
	return []gateway.BenchResult{{Result: "all/queue", Scenario: "queue", Started: benchTime, Machine: "2 cores", Valid: true, Figure: "7 messages/s", Row: "lease"}}, "results", nil
}

func (b *cannedBench) Compare(before, after string) (gateway.BenchComparison, error) {
	if before != "all/queue" || after != "all/queue" {
		return gateway.BenchComparison{}, gateway.ErrNoBenchResult
	}
	one := 1.0
	sum := gateway.BenchSummary{Median: 1, Low: &one, High: &one, Trials: 2}
	return gateway.BenchComparison{Differences: []string{"cores: 1, and 2"}, Missing: []string{"a is not in the first"},
		Changes: []gateway.BenchChange{{Row: "lease", Metric: "seconds", Main: true, Before: sum, After: sum, P: &one}}}, nil
}

func (b *cannedBench) Report(results []string) ([]byte, string, error) {
	for _, name := range results {
		if name != "all/queue" {
			return nil, "", gateway.ErrNoBenchResult
		}
	}
	return []byte("<p>" + strings.Join(results, " ")), "sandbox allow-scripts", nil
}

func (b *cannedBench) Scenarios() ([]gateway.BenchScenario, bool) {
	return []gateway.BenchScenario{{Scenario: "queue", Answers: "how fast"}}, true
}

func (b *cannedBench) Start(scenario string) (gateway.BenchRun, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case scenario != "queue":
		return gateway.BenchRun{}, gateway.ErrNoBenchScenario
	case b.run != nil && b.run.State == gateway.BenchRunning:
		return gateway.BenchRun{}, gateway.ErrBenchBusy
	}
	p50 := 1.5
	b.run = &gateway.BenchRun{
		Scenario: "queue", State: gateway.BenchRunning, Started: benchTime, Step: &gateway.BenchStep{Row: "lease", Number: 1, Of: 3, Phase: "measured"}, Lines: []string{"round 1"},
		Points: []gateway.BenchPoint{{Time: benchTime, Row: "lease", Phase: "measured", Rate: 7.5, P50: &p50, P99: &p50, Cores: 1}}, Results: []string{},
	}
	return *b.run, nil
}

func (b *cannedBench) Run() *gateway.BenchRun {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.run
}

func (b *cannedBench) Stop() *gateway.BenchRun {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.run == nil {
		return nil
	}
	now := *b.run
	now.State, now.Step, now.Ended, now.Results = gateway.BenchStopped, nil, benchTime, []string{"all/queue"}
	b.run = &now
	return b.run
}

// TestBench: results are listed and compared, one scenario runs at a time, and names that are not there lead nowhere. Answers are compared with their descriptions.
func TestBench(t *testing.T) {
	t.Parallel()
	f := closed{streams: newFakeStreams(t), queues: newFakeQueues(t)}
	_, addr := serve(t, gateway.Config{Engine: cannedEngine(f), Bench: &cannedBench{}})
	c := client{t, addr}
	ok := func(method, path, body, want string) {
		t.Helper()
		if status, text := c.do(method, path, body); status != http.StatusOK || !strings.Contains(text, want) {
			t.Errorf("%s %s: %d %s, want %s", method, path, status, text, want)
		}
	}
	ok("GET", "/v1/bench", "", `"figure":"7 messages/s"`)
	ok("GET", "/v1/bench/compare?before=all/queue&after=all%2Fqueue", "", `"metric":"seconds"`)
	c.refused("GET", "/v1/bench/compare?before=..%2F..%2Fetc%2Fpasswd&after=all/queue", "", http.StatusNotFound, "not_found")
	c.refused("POST", "/v1/bench/reports", `{"results":["../secret"]}`, http.StatusNotFound, "not_found")
	c.refused("POST", "/v1/bench/reports", `{"results":[]}`, http.StatusBadRequest, "malformed")
	ok("GET", "/v1/bench/run", "", `{}`)
	ok("DELETE", "/v1/bench/run", "", `{}`)
	c.refused("POST", "/v1/bench/run", `{"scenario":"queue --out /etc/passwd"}`, http.StatusNotFound, "not_found")
	c.refused("POST", "/v1/bench/run", `{"scenario":"queue","args":["--out=x"]}`, http.StatusBadRequest, "unknown_field")
	ok("POST", "/v1/bench/run", `{"scenario":"queue"}`, `"state":"running"`)
	c.refused("POST", "/v1/bench/run", `{"scenario":"queue"}`, http.StatusTooManyRequests, "too_many_jobs")
	c.refused("POST", "/v1/bench/run", `{"scenario":"queue"}`, http.StatusForbidden, "foreign_origin", "Origin", "https://evil.example")
	c.refused("DELETE", "/v1/bench/run", "", http.StatusForbidden, "foreign_origin", "Origin", "https://evil.example")
	ok("GET", "/v1/bench/run", "", `"number":1`)
	ok("DELETE", "/v1/bench/run", "", `"state":"stopped"`)
	ok("GET", "/v1/bench/run", "", `"ended":"2026-03-01T12:00:00Z"`)
	ok("DELETE", "/v1/bench/run", "", `"state":"stopped"`)
	if _, text := c.do("GET", "/v1/audit", ""); strings.Count(text, `"act":"stop benchmark"`) != 1 {
		t.Errorf("what stopped nothing is recorded: %s", text)
	}
}

// TestBench_ReportPages: a page has the policy that came with it, at an address that nobody can guess; the oldest pages are forgotten.
func TestBench_ReportPages(t *testing.T) {
	t.Parallel()
	c := serveClosed(t, func(cfg *gateway.Config) { cfg.Bench = &cannedBench{} })
	token := tokenOf(t, "bob", time.Hour, "bench server:*")
	made := func() string {
		_, text := client{t, c.addr}.do("POST", "/v1/bench/reports", `{"results":["all/queue"]}`, "Authorization", "Bearer "+token)
		var answer struct{ Path string }
		if err := json.Unmarshal([]byte(text), &answer); err != nil || len(answer.Path) < len("/console/report/")+20 {
			t.Fatalf("%s %v", text, err)
		}
		return answer.Path
	}
	get := func(path string) (*http.Response, string) { return client{t, c.addr}.fetch("GET", path, "") }
	first := made()
	resp, body := get(first)
	h := resp.Header
	if body != "<p>all/queue" || h.Get("Content-Security-Policy") != "sandbox allow-scripts" || h.Get("Cache-Control") != "no-store" ||
		h.Get("Referrer-Policy") != "no-referrer" || h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Content-Type") != "text/html; charset=utf-8" {
		t.Errorf("%q %v", body, h)
	}
	for range 8 {
		made()
	}
	for _, path := range []string{first, "/console/report/x"} {
		if resp, _ := get(path); resp.StatusCode != http.StatusNotFound || !strings.Contains(resp.Header.Get("Content-Security-Policy"), "default-src 'none'") {
			t.Errorf("%s: %d %v", path, resp.StatusCode, resp.Header)
		}
	}
	if resp, _ := get("/console/bench"); !strings.Contains(resp.Header.Get("Content-Security-Policy"), "default-src 'self'") || strings.Contains(resp.Header.Get("Content-Security-Policy"), "unsafe") {
		t.Errorf("the console: %v", resp.Header)
	}
}
