package gateway

import (
	"crypto/rand"
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/tidewire/tidewire/internal/engine"
)

// Bench has the results of benchmarks that are in a folder, and runs small benchmarks, one at a time. Its methods are safe for concurrent use.
type Bench interface {
	// Results returns the newest results first, and the name of their folder.
	Results() (all []BenchResult, folder string, err error)
	// Compare compares two results. The error is ErrNoBenchResult if one of them is not there.
	Compare(before, after string) (BenchComparison, error)
	// Report returns the report page of some results, and its content security policy. The error is ErrNoBenchResult if one is not there.
	Report(results []string) (page []byte, policy string, err error)
	// Scenarios returns what can be started, and whether this server starts them.
	Scenarios() (all []BenchScenario, starts bool)
	// Start starts the quick form of a scenario. The error is ErrNoBenchScenario, ErrBenchBusy or ErrBenchOff, or why it could not be started.
	Start(scenario string) (BenchRun, error)
	// Run returns the newest run, or nil if there was none.
	Run() *BenchRun
	// Stop stops the run that is running, if there is one, and returns the newest.
	Stop() *BenchRun
}

// Errors of a Bench.
var (
	ErrNoBenchResult   = errors.New("there is no such result")
	ErrNoBenchScenario = errors.New("there is no such scenario")
	ErrBenchBusy       = errors.New("a benchmark is running: only one runs at a time")
	ErrBenchOff        = errors.New("this server starts no benchmarks: in open mode, only a server does that listens on this machine alone (--host localhost)")
)

// BenchResult is a result file. Result is its path below the folder, without its ending.
type BenchResult struct {
	Result   string    `json:"result"`
	Scenario string    `json:"scenario"`
	Started  time.Time `json:"started"`
	Machine  string    `json:"machine"`
	Valid    bool      `json:"valid"`
	Figure   string    `json:"figure,omitempty"`
	Row      string    `json:"row,omitempty"` // that has the figure
}

// BenchScenario is a scenario, and the question that it answers.
type BenchScenario struct {
	Scenario string `json:"scenario"`
	Answers  string `json:"answers"`
}

// BenchComparison says what changed between two results, and why they may not be comparable.
type BenchComparison struct {
	Differences []string      `json:"differences"`
	Missing     []string      `json:"missing"`
	Changes     []BenchChange `json:"changes"`
}

// BenchChange is how one metric of a row changed. P is the probability of such a difference by chance; nil with fewer than two repeats.
type BenchChange struct {
	Row         string       `json:"row"`
	Metric      string       `json:"metric"`
	Main        bool         `json:"main"`
	Before      BenchSummary `json:"before"`
	After       BenchSummary `json:"after"`
	P           *float64     `json:"p,omitempty"`
	Significant bool         `json:"significant"`
}

// BenchSummary is a median with its 95 % interval, which one repeat does not have.
type BenchSummary struct {
	Median float64  `json:"median"`
	Low    *float64 `json:"low,omitempty"`
	High   *float64 `json:"high,omitempty"`
	Trials int      `json:"trials"`
}

// The states of a run.
const (
	BenchRunning = "running"
	BenchDone    = "done" // with results, which may be invalid
	BenchStopped = "stopped"
	BenchFailed  = "failed"
)

// BenchRun is a run: where it is, its last lines and ticks, and its results.
type BenchRun struct {
	Scenario string       `json:"scenario"`
	State    string       `json:"state"`
	Started  time.Time    `json:"started"`
	Ended    time.Time    `json:"ended,omitzero"`
	Step     *BenchStep   `json:"step,omitempty"`
	Lines    []string     `json:"lines"`
	Points   []BenchPoint `json:"points"`
	Results  []string     `json:"results"`
}

// BenchStep is where a run is.
type BenchStep struct {
	Row    string `json:"row"`
	Number int    `json:"number"`
	Of     int    `json:"of"`
	Phase  string `json:"phase"`
}

// BenchPoint is one tick of a run.
type BenchPoint struct {
	Time  time.Time `json:"time"`
	Row   string    `json:"row"`
	Phase string    `json:"phase"`
	Rate  float64   `json:"rate"` // messages, calls or deliveries a second
	P50   *float64  `json:"p50_ms,omitempty"`
	P99   *float64  `json:"p99_ms,omitempty"`
	Cores float64   `json:"cores"` // of all processes together
}

func benchRoutes() map[string]route {
	bench := func(*http.Request) need { return needBench }
	return map[string]route{
		"GET /v1/bench":          {(*call).benchResults, bench},
		"GET /v1/bench/compare":  {(*call).compareBench, bench},
		"POST /v1/bench/reports": {(*call).reportBench, bench},
		"GET /v1/bench/run":      {func(c *call) { c.benchRun(Bench.Run) }, bench},
		"POST /v1/bench/run":     {(*call).startBench, bench},
		"DELETE /v1/bench/run":   {(*call).stopBench, bench},
	}
}

// bench returns what has results, or nil if it has refused the call.
func (c *call) bench() Bench {
	if !c.served(c.api.server.cfg.Bench != nil) {
		return nil
	}
	return c.api.server.cfg.Bench
}

// failBench refuses the call for an error of a Bench.
func (c *call) failBench(err error) {
	switch {
	case errors.Is(err, ErrNoBenchResult), errors.Is(err, ErrNoBenchScenario):
		c.refuseFor(&problem{code: engine.CodeNotFound, text: err.Error()})
	case errors.Is(err, ErrBenchBusy):
		c.refuseFor(&problem{code: codeTooManyJobs, text: err.Error()})
	case errors.Is(err, ErrBenchOff):
		c.refuseFor(&problem{code: codeNotServed, text: err.Error()})
	default:
		c.api.server.cfg.Log.Error("benchmarks", "error", err)
		c.refuseFor(&problem{code: codeInternal, text: "the server could not do this with its benchmarks; its log says why"})
	}
}

// benchResults lists the results, and what can be started.
func (c *call) benchResults() {
	b := c.bench()
	if b == nil {
		return
	}
	results, folder, err := b.Results()
	if err != nil {
		c.failBench(err)
		return
	}
	scenarios, starts := b.Scenarios()
	c.answer(map[string]any{"folder": folder, "results": results, "scenarios": scenarios, "starts": starts})
}

// compareBench compares two results.
func (c *call) compareBench() {
	b := c.bench()
	if b == nil {
		return
	}
	query := c.r.URL.Query()
	comparison, err := b.Compare(query.Get("before"), query.Get("after"))
	if err != nil {
		c.failBench(err)
		return
	}
	c.answer(comparison)
}

// maxReported is how many results a report page has at most.
const maxReported = 20

// reportBench makes a report page, and tells its address.
func (c *call) reportBench() {
	b := c.bench()
	if b == nil {
		return
	}
	var body struct {
		Results []string `json:"results"`
	}
	if !c.readStrict(&body) {
		return
	}
	if n := len(body.Results); n == 0 || n > maxReported {
		c.refuseFor(malformed("results", "1 to 20 results"))
		return
	}
	page, policy, err := b.Report(body.Results)
	if err != nil {
		c.failBench(err)
		return
	}
	c.answer(map[string]string{"path": c.api.server.reports.keep(page, policy)})
}

// startBench starts a run.
func (c *call) startBench() {
	b := c.bench()
	if b == nil {
		return
	}
	var body struct {
		Scenario string `json:"scenario"`
	}
	if !c.readStrict(&body) {
		return
	}
	run, err := b.Start(body.Scenario)
	if err != nil {
		c.failBench(err)
		return
	}
	c.acted(actStartBench, body.Scenario)
	c.answer(map[string]BenchRun{"run": run})
}

// stopBench stops the run.
func (c *call) stopBench() {
	c.benchRun(func(b Bench) *BenchRun {
		before, run := b.Run(), b.Stop()
		if before != nil && before.State == BenchRunning {
			c.acted(actStopBench, run.Scenario)
		}
		return run
	})
}

// benchRun answers with a run, or without one.
func (c *call) benchRun(get func(Bench) *BenchRun) {
	b := c.bench()
	if b == nil {
		return
	}
	answer := map[string]*BenchRun{}
	if run := get(b); run != nil {
		answer["run"] = run
	}
	c.answer(answer)
}

// maxReports is how many report pages a server keeps: the newest.
const maxReports = 8

// reports are report pages at addresses that cannot be guessed: a browser that opens one sends no token. They run scripts, in an origin of their own, where
// these have no rights. Safe for concurrent use.
type reports struct {
	mu  sync.Mutex
	all []reportPage // oldest first
}

type reportPage struct {
	id, policy string
	page       []byte
}

const reportPath = "/console/report/"

// keep keeps a page, and returns its path.
func (r *reports) keep(page []byte, policy string) string {
	one := reportPage{rand.Text(), policy, page}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.all) == maxReports {
		r.all = slices.Delete(r.all, 0, 1)
	}
	r.all = append(r.all, one)
	return reportPath + one.id
}

// ServeHTTP implements http.Handler.
func (r *reports) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	i := slices.IndexFunc(r.all, func(one reportPage) bool { return one.id == req.PathValue("id") })
	one := reportPage{policy: "default-src 'none'; frame-ancestors 'none'; sandbox"}
	if i >= 0 {
		one = r.all[i]
	}
	r.mu.Unlock()
	h := w.Header()
	h.Set("Content-Security-Policy", one.policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	if i < 0 {
		http.Error(w, "this report is no longer kept: open it again in the console", http.StatusNotFound)
		return
	}
	h.Set("Content-Type", "text/html; charset=utf-8")
	w.Write(one.page)
}
