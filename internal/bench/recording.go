package bench

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Tick is the state of one row during one interval, usually a second. Metrics
// have the same names as in a result, and describe this interval only.
type Tick struct {
	Row     string             `json:"row"`
	Trial   int                `json:"trial"`      // from 0
	Phase   string             `json:"phase"`      // PhaseWarmUp, PhaseMeasured or PhaseDrain
	At      float64            `json:"at_seconds"` // end of the interval, since the trial began
	Seconds float64            `json:"seconds"`    // its length
	Metrics map[string]float64 `json:"metrics"`
}

// The phases of a trial. The measured phase is between a warm-up and the time in
// which readers catch up.
const (
	PhaseWarmUp   = "warm-up"
	PhaseMeasured = "measured"
	PhaseDrain    = "drain"
)

// Latencies has all latencies of one kind of one trial.
type Latencies struct {
	Row    string
	Trial  int
	Prefix string // of the metrics: "", "write_", "end_to_end_", …
	*Histogram
}

// Recording is the raw data of a run: the state of its rows in each second, and
// all their latencies. It is stored in two files beside the result. Safe for
// concurrent use; the zero value is ready.
type Recording struct {
	mu        sync.Mutex // guards the fields below
	ticks     []Tick
	latencies []Latencies
	observe   func(Tick)
}

// Observe sets f to be called with each later Tick, one call at a time.
func (r *Recording) Observe(f func(Tick)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.observe = f
}

// Tick adds one.
func (r *Recording) Tick(t Tick) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ticks = append(r.ticks, t)
	if r.observe != nil {
		r.observe(t)
	}
}

// Latencies adds a histogram, unless it is empty.
func (r *Recording) Latencies(row string, trial int, prefix string, h *Histogram) {
	if h == nil || h.Count() == 0 {
		return
	}
	copied := NewHistogram()
	copied.Merge(h)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.latencies = append(r.latencies, Latencies{row, trial, prefix, copied})
}

// AllTicks returns the ticks in the order in which they were added.
func (r *Recording) AllTicks() []Tick {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ticks
}

// AllLatencies returns the latencies in the order in which they were added.
func (r *Recording) AllLatencies() []Latencies {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.latencies
}

// Beside returns the name of a file that belongs to a result: "r.json" has
// "r.hlog", "r.series.jsonl" and "r.rerun.toml".
func Beside(result, ending string) string {
	return strings.TrimSuffix(result, ".json") + ending
}

// The endings of the files beside a result.
const (
	EndingLatencies = ".hlog"
	EndingSeries    = ".series.jsonl"
	EndingRerun     = ".rerun.toml"
)

// write stores the recording beside the result. An empty part gets no file.
func (r *Recording) write(result string, started time.Time) error {
	var series, latencies bytes.Buffer
	lines := json.NewEncoder(&series)
	for _, t := range r.AllTicks() {
		if err := lines.Encode(t); err != nil {
			return fmt.Errorf("encode series: %w", err)
		}
	}
	if err := writeLog(&latencies, started, r.AllLatencies()); err != nil {
		return fmt.Errorf("encode latencies: %w", err)
	}
	for ending, data := range map[string][]byte{EndingSeries: series.Bytes(), EndingLatencies: latencies.Bytes()} {
		path := Beside(result, ending)
		if len(data) == 0 {
			if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) { // left by an older result
				return err
			}
			continue
		}
		if err := os.WriteFile(path, data, 0o644); err != nil {
			return fmt.Errorf("write beside the result: %w", err)
		}
	}
	return nil
}

// writeLog writes an HDR log (version 1.3): one histogram in microseconds for
// each Latencies, tagged "row|trial|prefix".
func writeLog(w io.Writer, started time.Time, all []Latencies) error {
	if len(all) == 0 {
		return nil
	}
	log := hdrhistogram.NewHistogramLogWriter(w)
	log.SetBaseTime(started.UnixMilli())
	err := errors.Join(log.OutputLogFormatVersion(), log.OutputComment("[Histograms in microseconds; the tag is row|trial|prefix of the metrics]"),
		log.OutputBaseTime(started.UnixMilli()), log.OutputStartTime(started.UnixMilli()), log.OutputLegend())
	for _, l := range all {
		l.h.SetTag(tagOf(l))
		l.h.SetStartTimeMs(started.UnixMilli())
		l.h.SetEndTimeMs(started.UnixMilli())
		err = errors.Join(err, log.OutputIntervalHistogram(l.h))
	}
	return err
}

// tagOf returns a tag without the characters that separate fields in an HDR log.
func tagOf(l Latencies) string {
	row := strings.NewReplacer(",", ";", " ", "_", "\n", "_").Replace(l.Row)
	return row + "|" + strconv.Itoa(l.Trial) + "|" + l.Prefix
}

// ReadRecording reads the files beside a result. Missing files mean no data.
// Rows of latencies are named as in the result.
func ReadRecording(path string, result *Result) (*Recording, error) {
	var r Recording
	series, err := os.ReadFile(Beside(path, EndingSeries))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	for lines := bufio.NewScanner(bytes.NewReader(series)); lines.Scan(); {
		var t Tick
		if err := json.Unmarshal(lines.Bytes(), &t); err != nil {
			return nil, fmt.Errorf("read %s: %w", Beside(path, EndingSeries), err)
		}
		r.ticks = append(r.ticks, t)
	}
	log, err := os.ReadFile(Beside(path, EndingLatencies))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	if r.latencies, err = readLog(log, result); err != nil {
		return nil, fmt.Errorf("read %s: %w", Beside(path, EndingLatencies), err)
	}
	return &r, nil
}

func readLog(data []byte, result *Result) (all []Latencies, err error) {
	if len(data) == 0 {
		return nil, nil
	}
	names := make(map[string]string) // by their form in tags
	for _, row := range result.Rows {
		name, _, _ := strings.Cut(tagOf(Latencies{Row: row.Name}), "|")
		names[name] = row.Name
	}
	log := hdrhistogram.NewHistogramLogReader(bytes.NewReader(data))
	for {
		h, err := log.NextIntervalHistogram()
		if err != nil || h == nil {
			return all, err
		}
		parts := strings.Split(h.Tag(), "|")
		if len(parts) != 3 {
			return nil, fmt.Errorf("tag %q: want row|trial|prefix", h.Tag())
		}
		trial, err := strconv.Atoi(parts[1])
		if err != nil {
			return nil, fmt.Errorf("tag %q: %w", h.Tag(), err)
		}
		row, known := names[parts[0]]
		if !known {
			row = parts[0]
		}
		all = append(all, Latencies{row, trial, parts[2], &Histogram{h}})
	}
}
