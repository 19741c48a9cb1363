package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Schema is the version of the result file.
const Schema = 1

// Result is the outcome of one run of one scenario. docs/reference/results.md describes
// the file.
type Result struct {
	Schema      int            `json:"schema"`
	Scenario    string         `json:"scenario"`
	Started     time.Time      `json:"started"`
	Valid       bool           `json:"valid"`
	Checks      []Check        `json:"checks"`
	Params      map[string]any `json:"params"`
	Environment Environment    `json:"environment"`
	Rows        []Row          `json:"rows"`
	// Command is the command line that repeats the run.
	Command string `json:"command,omitempty"`
	// Thresholds are the bounds that the user set. They do not decide whether
	// the run is valid.
	Thresholds []Check `json:"thresholds,omitempty"`
	// Recording is the raw data, which is stored in separate files.
	Recording Recording `json:"-"`

	cpuTotal, cpuStolen float64 // of the machine, at the start of the run
}

// Check is the outcome of one check that a run makes of itself.
type Check struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail"`
}

// Row is one mode, strategy, target or step of a scenario.
type Row struct {
	Name        string             `json:"name"`
	Description string             `json:"description,omitempty"`
	Metrics     map[string]float64 `json:"metrics"`
	// Trials are the metrics of each repeat; Metrics are their medians.
	Trials []map[string]float64 `json:"trials,omitempty"`
	// Labels are what a report groups the row by: "target", and for compared
	// servers "language" and "profile".
	Labels map[string]string `json:"labels,omitempty"`
	// Verdicts are the judgements of a soak. They do not decide whether the run is valid.
	Verdicts []Check `json:"verdicts,omitempty"`
	// Limiter says what kept the row from being faster: see the function Limiter.
	Limiter string `json:"limiter,omitempty"`
	// Note says why there are no metrics, or what went wrong if there are some.
	Note string `json:"note,omitempty"`
}

// NewResult starts a result.
func NewResult(scenario string, params map[string]any) *Result {
	r := &Result{Schema: Schema, Scenario: scenario, Started: time.Now().UTC(), Params: params}
	r.cpuTotal, r.cpuStolen = cpuTimes(context.Background())
	return r
}

// Describe describes the machine, at the end of the run. The description of the
// database stays unchanged.
func (r *Result) Describe(ctx context.Context) {
	pg := r.Environment.PostgreSQL
	r.Environment = CaptureEnvironment(ctx)
	r.Environment.PostgreSQL = pg
	if total, stolen := cpuTimes(ctx); total > r.cpuTotal {
		r.Environment.CPUSteal = (stolen - r.cpuStolen) / (total - r.cpuTotal)
	}
}

// Check records a check.
func (r *Result) Check(name string, ok bool, format string, args ...any) {
	r.Checks = append(r.Checks, Check{name, ok, fmt.Sprintf(format, args...)})
}

// Finish decides whether the result is valid: it has at least one check, and
// every check holds.
func (r *Result) Finish() {
	r.Valid = len(r.Checks) > 0 && !slices.ContainsFunc(r.Checks, func(c Check) bool { return !c.OK })
}

// Row returns the row with that name, or nil.
func (r *Result) Row(name string) *Row {
	for i := range r.Rows {
		if r.Rows[i].Name == name {
			return &r.Rows[i]
		}
	}
	return nil
}

// AddTrial adds the metrics of one repeat to the row with that name, creates
// the row if necessary, and updates its medians.
func (r *Result) AddTrial(name, description string, metrics map[string]float64) {
	row := r.row(name, description)
	row.Trials = append(row.Trials, metrics)
	row.Metrics = medians(row.Trials)
}

// AddNote adds to the note of the row with that name, and creates the row if
// necessary. It adds no text twice.
func (r *Result) AddNote(name, description, note string) {
	row := r.row(name, description)
	switch {
	case row.Note == "":
		row.Note = note
	case !strings.Contains(row.Note, note):
		row.Note += "; " + note
	}
}

// row returns the row with that name, and creates it if necessary.
func (r *Result) row(name, description string) *Row {
	if row := r.Row(name); row != nil {
		return row
	}
	r.Rows = append(r.Rows, Row{Name: name, Description: description})
	return &r.Rows[len(r.Rows)-1]
}

// medians returns the median of each metric over the trials that have it.
func medians(trials []map[string]float64) map[string]float64 {
	values := make(map[string][]float64)
	for _, t := range trials {
		for name, v := range t {
			values[name] = append(values[name], v)
		}
	}
	out := make(map[string]float64, len(values))
	for name, vs := range values {
		out[name] = Median(vs)
	}
	return out
}

// Median returns the middle value, or the mean of the two in the middle; 0 if
// there are no values.
func Median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	mid := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[mid]
	}
	return (sorted[mid-1] + sorted[mid]) / 2
}

// DefaultPath returns the path of a result whose file the user did not name: in
// results/, by scenario and time.
func (r *Result) DefaultPath() string {
	stamp := strings.ReplaceAll(r.Started.Format("20060102T150405.000"), ".", "-")
	return filepath.Join("results", r.Scenario+"-"+stamp+".json")
}

// Write stores the result as a file, completely or not at all, and the raw data
// beside it.
func (r *Result) Write(path string) error {
	var data bytes.Buffer
	lines := json.NewEncoder(&data)
	lines.SetEscapeHTML(false) // the file is not part of a web page
	lines.SetIndent("", " ")
	if err := lines.Encode(r); err != nil {
		return fmt.Errorf("encode result: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("make directory of results: %w", err)
	}
	if err := r.Recording.write(path, r.Started); err != nil {
		return err
	}
	unfinished := path + ".tmp"
	if err := os.WriteFile(unfinished, data.Bytes(), 0o644); err != nil {
		return fmt.Errorf("write result: %w", err)
	}
	if err := os.Rename(unfinished, path); err != nil {
		return fmt.Errorf("write result: %w", err)
	}
	return nil
}

// Read loads a result file, and the raw data beside it.
func Read(path string) (*Result, error) {
	r, err := ReadAlone(path)
	if err != nil {
		return nil, err
	}
	recording, err := ReadRecording(path, r)
	if err != nil {
		return nil, err
	}
	r.Recording.ticks, r.Recording.latencies = recording.ticks, recording.latencies
	return r, nil
}

// ReadAlone loads a result file without the raw data beside it.
func ReadAlone(path string) (*Result, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read result: %w", err)
	}
	var r Result
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, fmt.Errorf("read result %s: %w", path, err)
	}
	if r.Schema != Schema {
		return nil, fmt.Errorf("read result %s: schema is %d, this program reads %d", path, r.Schema, Schema)
	}
	return &r, nil
}
