package runner

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tidewire/tidewire/internal/bench"
	"github.com/tidewire/tidewire/internal/bench/report"
	"github.com/tidewire/tidewire/internal/gateway"
)

const (
	// mostResults is how many results are listed: the newest.
	mostResults = 500
	// mostBytes is the size of the largest file that is read.
	mostBytes = 64 << 20
	// deepest is how many folders below the folder of results are looked into: that of bench all.
	deepest = 2
)

// found is a result file, as it was when it was read. A file that is no result has none.
type found struct {
	size    int64
	changed time.Time
	result  *gateway.BenchResult
}

// folder is the folder of results. Files are read again only if they have changed. Safe for concurrent use.
type folder struct {
	dir string

	mu    sync.Mutex // held while files are read: a few requests at a time cost no more than one
	known map[string]found
}

// list returns the newest results first. A folder that is not there has none.
func (f *folder) list() ([]gateway.BenchResult, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.look(); err != nil {
		return nil, err
	}
	all := []gateway.BenchResult{}
	for _, one := range f.known {
		if one.result != nil {
			all = append(all, *one.result)
		}
	}
	slices.SortFunc(all, func(a, b gateway.BenchResult) int {
		return cmp.Or(b.Started.Compare(a.Started), cmp.Compare(a.Result, b.Result))
	})
	return all[:min(len(all), mostResults)], nil
}

// look reads what is new or has changed. The caller holds the lock.
func (f *folder) look() error {
	now := make(map[string]found)
	err := filepath.WalkDir(f.dir, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it was removed just now
		}
		if err != nil {
			return err
		}
		below, err := filepath.Rel(f.dir, path)
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if below != "." && strings.Count(filepath.ToSlash(below), "/") >= deepest {
				return fs.SkipDir
			}
			return nil
		}
		name, isJSON := strings.CutSuffix(filepath.ToSlash(below), ".json")
		if !isJSON || !entry.Type().IsRegular() { // a link might lead anywhere
			return nil
		}
		info, err := entry.Info()
		if err != nil || info.Size() > mostBytes {
			return nil
		}
		one := f.known[name]
		if one.size != info.Size() || !one.changed.Equal(info.ModTime()) {
			one = found{info.Size(), info.ModTime(), describe(path, name)}
		}
		now[name] = one
		return nil
	})
	if err != nil {
		return fmt.Errorf("look into the folder of results: %w", err)
	}
	f.known = now
	return nil
}

// describe reads a file; nil if it is no result.
func describe(path, name string) *gateway.BenchResult {
	r, err := bench.ReadAlone(path)
	if err != nil {
		return nil
	}
	one := &gateway.BenchResult{Result: name, Scenario: r.Scenario, Started: r.Started.UTC(), Valid: r.Valid, Machine: machine(r.Environment)}
	one.Figure, one.Row = report.Main(r)
	return one
}

func machine(e bench.Environment) string {
	text := fmt.Sprintf("%d cores, %s", e.Cores, e.CPU)
	if e.PostgreSQL != nil {
		version, _, _ := strings.Cut(e.PostgreSQL.Version, " ")
		text += ", PostgreSQL " + version
	}
	return text
}

// path returns the file of a result that the list has. A name that was made up leads nowhere.
func (f *folder) path(name string) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.known[name].result == nil {
		if err := f.look(); err != nil {
			return "", err
		}
	}
	if f.known[name].result == nil {
		return "", gateway.ErrNoBenchResult
	}
	return filepath.Join(f.dir, filepath.FromSlash(name)+".json"), nil
}

// Results implements gateway.Bench.
func (r *Runner) Results() ([]gateway.BenchResult, string, error) {
	all, err := r.folder.list()
	return all, r.cfg.Dir, err
}

// Compare implements gateway.Bench.
func (r *Runner) Compare(before, after string) (gateway.BenchComparison, error) {
	var results [2]*bench.Result
	for i, name := range []string{before, after} {
		path, err := r.folder.path(name)
		if err != nil {
			return gateway.BenchComparison{}, err
		}
		if results[i], err = bench.ReadAlone(path); err != nil {
			return gateway.BenchComparison{}, gone(err)
		}
	}
	a, b := results[0], results[1]
	out := gateway.BenchComparison{
		Differences: append([]string{}, report.Differences(a, b)...), Missing: append([]string{}, report.Missing(a, b)...), Changes: []gateway.BenchChange{},
	}
	for _, c := range report.Compare(a, b) {
		change := gateway.BenchChange{Row: c.Row, Metric: c.Metric, Main: c.Main(), Before: summary(c.Old), After: summary(c.New), Significant: c.Significant}
		if c.Old.Trials > 1 && c.New.Trials > 1 {
			change.P = known(c.P)
		}
		out.Changes = append(out.Changes, change)
	}
	return out, nil
}

func summary(s report.Summary) gateway.BenchSummary {
	return gateway.BenchSummary{Median: s.Median, Low: known(s.Low), High: known(s.High), Trials: s.Trials}
}

// known returns nil for a number that JSON does not have.
func known(v float64) *float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	return &v
}

// gone says that a result which was listed is not there any more.
func gone(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return gateway.ErrNoBenchResult
	}
	return err
}

// Report implements gateway.Bench. Pages are made one after the other, because raw data take memory.
func (r *Runner) Report(results []string) ([]byte, string, error) {
	r.pages.Lock()
	defer r.pages.Unlock()
	var files []report.File
	for _, name := range results {
		path, err := r.folder.path(name)
		if err != nil {
			return nil, "", err
		}
		file, err := report.Open(path)
		if err != nil {
			return nil, "", gone(err)
		}
		files = append(files, file)
	}
	var page strings.Builder
	if err := report.HTML(&page, files); err != nil {
		return nil, "", err
	}
	return []byte(page.String()), report.Policy(), nil
}
