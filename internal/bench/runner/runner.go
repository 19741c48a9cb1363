package runner

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tidewire/tidewire/internal/gateway"
)

// Watched is the environment variable that tells a benchmark that this package watches it: it writes live.Events, and ends when its standard input closes.
const Watched = "TIDEWIRE_BENCH_WATCHED"

// Scenario can be started. Args are the arguments of its quick form, after the name of the program and without --out.
type Scenario struct {
	Name, Answers string
	Args          []string
}

// Config configures a Runner.
type Config struct {
	// Dir has the results. It need not be there.
	Dir string
	// Program is the path of tidewire.
	Program string
	// Scenarios can be started, if Starts is true.
	Scenarios []Scenario
	Starts    bool
	// Getenv is the environment, of which a child gets only what it needs.
	Getenv func(string) string
	// Grace is how long a child may take to stop. Defaults to 20 s.
	Grace time.Duration
}

// Runner implements gateway.Bench.
type Runner struct {
	cfg    Config
	folder folder
	pages  sync.Mutex // held while a report page is made

	mu     sync.Mutex // guards the fields below
	newest *run
	closed bool
}

// New returns a Runner. When ctx ends, the run is stopped; Close waits for it.
func New(ctx context.Context, cfg Config) *Runner {
	if cfg.Grace == 0 {
		cfg.Grace = 20 * time.Second
	}
	r := &Runner{cfg: cfg, folder: folder{dir: cfg.Dir}}
	context.AfterFunc(ctx, r.end)
	return r
}

// end stops the run, and starts no other.
func (r *Runner) end() {
	r.mu.Lock()
	r.closed = true
	newest := r.newest
	r.mu.Unlock()
	if newest != nil {
		newest.stop()
	}
}

// Close stops the run, and waits until its processes have ended.
func (r *Runner) Close() {
	r.end()
	r.mu.Lock()
	newest := r.newest
	r.mu.Unlock()
	if newest != nil {
		<-newest.ended
	}
}

// Scenarios implements gateway.Bench.
func (r *Runner) Scenarios() (all []gateway.BenchScenario, starts bool) {
	for _, s := range r.cfg.Scenarios {
		all = append(all, gateway.BenchScenario{Scenario: s.Name, Answers: s.Answers})
	}
	return all, r.cfg.Starts
}

// Start implements gateway.Bench.
func (r *Runner) Start(scenario string) (gateway.BenchRun, error) {
	i := slices.IndexFunc(r.cfg.Scenarios, func(s Scenario) bool { return s.Name == scenario })
	switch {
	case !r.cfg.Starts:
		return gateway.BenchRun{}, gateway.ErrBenchOff
	case i < 0:
		return gateway.BenchRun{}, gateway.ErrNoBenchScenario
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed || r.newest != nil && r.newest.running() {
		return gateway.BenchRun{}, gateway.ErrBenchBusy
	}
	now := time.Now().UTC()
	name := scenario + "-" + strings.ReplaceAll(now.Format("20060102T150405.000"), ".", "-")
	one := newRun(scenario, name, now, r.cfg.Grace, &r.folder)
	args := append(slices.Clone(r.cfg.Scenarios[i].Args), "--out", filepath.Join(r.cfg.Dir, name+".json"))
	if err := one.start(r.cfg.Program, args, environment(r.cfg.Getenv)); err != nil {
		return gateway.BenchRun{}, err
	}
	r.newest = one
	return one.look(), nil
}

// environment is what a child gets: where programs, caches and temporary files are. Without the variables of PostgreSQL and of the server, it starts a PostgreSQL
// of its own, and knows no secret.
func environment(getenv func(string) string) []string {
	all := []string{Watched + "=1"}
	for _, name := range []string{"PATH", "HOME", "USER", "LOGNAME", "TMPDIR", "LANG", "LC_ALL", "XDG_CACHE_HOME", "XDG_DATA_HOME"} {
		if v := getenv(name); v != "" {
			all = append(all, name+"="+v)
		}
	}
	return all
}

// Run implements gateway.Bench.
func (r *Runner) Run() *gateway.BenchRun {
	r.mu.Lock()
	newest := r.newest
	r.mu.Unlock()
	if newest == nil {
		return nil
	}
	run := newest.look()
	return &run
}

// Stop implements gateway.Bench.
func (r *Runner) Stop() *gateway.BenchRun {
	r.mu.Lock()
	newest := r.newest
	r.mu.Unlock()
	if newest == nil {
		return nil
	}
	newest.stop()
	run := newest.look()
	return &run
}
