package live

import (
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"

	"github.com/tidewire/tidewire/internal/bench"
)

var update = flag.Bool("update", false, "write the golden frames")

var began = time.Date(2026, 11, 2, 9, 0, 0, 0, time.UTC)

// setup returns a page of that size, at the start of a run on two cores.
func setup(width, height int, keyboard bool) *model {
	m := newModel(new(bench.Control), bench.Environment{Cores: 2, MemoryBytes: 8e9}, keyboard)
	m.begun, m.now, m.stepAt, m.phaseAt = began, began, began, began
	m.Update(tea.WindowSizeMsg{Width: width, Height: height})
	return m
}

var aboutPostgreSQL = &bench.PostgreSQL{
	Durability: map[string]string{"fsync": "on", "synchronous_commit": "on"}, SyncP50Ms: 0.84,
}

func stage(phase string) bench.Stage {
	return bench.Stage{
		Scenario: "queue", Number: 2, Of: 4, Left: 244 * time.Second, Phase: phase, PostgreSQL: aboutPostgreSQL,
		Step: bench.Step{Row: "skip-locked", WarmUp: 2 * time.Second, Duration: 2 * time.Minute},
	}
}

// recorded returns a tick, with occasional spikes of latency.
func recorded(n int) bench.Tick {
	p99 := 3 + 2*math.Sin(float64(n)/4)
	if n%17 == 0 {
		p99 = 180
	}
	return bench.Tick{Row: "skip-locked", Phase: bench.PhaseMeasured, At: float64(n + 1), Seconds: 1, Metrics: map[string]float64{
		"messages_per_second": 12_000 + 100*float64(n%7), "offered_messages_per_second": 15_000, "errors": 0, "missing": 1234,
		"latency_p50_ms": 0.72, "latency_p99_ms": p99, "latency_p999_ms": 4 * p99, "generator_late_p99_ms": 0.13,
		"server_cpu_cores": 0.31, "postgres_cpu_cores": 1.22, "generator_cpu_cores": 0.35,
		"server_rss_bytes": 48e6, "generator_rss_bytes": 91e6,
	}}
}

// play advances the page to the 45th second of the measured phase.
func play(m *model) {
	m.Update(stage(bench.PhasePrepare))
	m.Update(second(began.Add(time.Second)))
	m.Update(stage(bench.PhaseWarmUp))
	m.Update(second(began.Add(3 * time.Second)))
	m.Update(stage(bench.PhaseMeasured))
	for n := range 45 {
		m.Update(second(began.Add(time.Duration(4+n) * time.Second)))
		m.Update(recorded(n))
	}
	m.Update(line("round 1: lease"))
	m.Update(line("time=2026-11-02T09:00:01Z level=INFO msg=\"private PostgreSQL is running\" version=18.1 data=/somewhere"))
	m.Update(line("round 1: \x1b[31mskip-locked"))
}

var escapes = regexp.MustCompile(`\x1b\[[0-9;:]*m`)

// frame is the page without its colours, and trailing blanks.
func frame(m *model) string {
	lines := strings.Split(escapes.ReplaceAllString(m.View().Content, ""), "\n")
	for i, l := range lines {
		lines[i] = strings.TrimRight(l, " ")
	}
	return strings.Join(lines, "\n") + "\n"
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s: want\n%s\ngot\n%s", name, want, got)
	}
}

var sizes = [][2]int{{80, 24}, {120, 40}, {50, 20}, {60, 24}, {200, 60}, {80, 12}, {30, 8}, {1, 1}}

func TestPage_Golden(t *testing.T) {
	t.Parallel()
	for _, s := range sizes[:3] {
		m := setup(s[0], s[1], true)
		play(m)
		golden(t, fmt.Sprintf("page-%dx%d", s[0], s[1]), frame(m))
	}
	m := setup(80, 24, true)
	golden(t, "page-begins", frame(m))
	m.Update(stage(bench.PhasePaused))
	m.press("p")
	golden(t, "page-paused", frame(m))
	m = setup(80, 24, false)
	m.Update(recorded(1)) // a scenario need not report its stage
	if f := frame(m); strings.Contains(f, "skip step") || !strings.Contains(f, "limits now") || !strings.Contains(f, "skip-locked · round 1") {
		t.Errorf("without a keyboard\n%s", f)
	}
}

// TestPage_FitsEverySize: a page that is larger than its terminal would scroll.
func TestPage_FitsEverySize(t *testing.T) {
	t.Parallel()
	for _, s := range sizes {
		m := setup(s[0], s[1], true)
		for range 3 { // before it begins, in the middle, and with long words
			page := m.page()
			if len(page) > s[1] {
				t.Errorf("%v: %d lines", s, len(page))
			}
			for _, l := range page {
				if w := lipgloss.Width(l); w > s[0] {
					t.Errorf("%v: %d wide: %q", s, w, l)
				}
			}
			play(m)
			m.notice = strings.Repeat("long ", 10)
		}
	}
}

func TestKeys(t *testing.T) {
	t.Parallel()
	m := setup(80, 24, true)
	key := func(r rune) tea.Cmd {
		_, cmd := m.Update(tea.KeyPressMsg{Code: r, Text: string(r)})
		return cmd
	}
	key('s')
	if !strings.Contains(frame(m), "tidewire bench") || m.notice != "no step to skip" {
		t.Errorf("s with no step: %q", m.notice)
	}
	play(m)
	key('p')
	if !strings.Contains(frame(m), "pauses before the next step") || !strings.Contains(frame(m), "p go on") {
		t.Errorf("p:\n%s", frame(m))
	}
	key('p')
	if m.paused || strings.Contains(frame(m), "pauses before") {
		t.Errorf("p again:\n%s", frame(m))
	}
	key('s')
	if !strings.Contains(frame(m), "skipping this step") {
		t.Errorf("s:\n%s", frame(m))
	}
	next := stage(bench.PhasePrepare)
	next.Number = 3
	if m.Update(next); m.notice != "" {
		t.Errorf("the next step still says %q", m.notice)
	}
	key('q')
	if !m.control.HasQuit() || !strings.Contains(frame(m), "what was finished is kept") {
		t.Errorf("q:\n%s", frame(m))
	}
	_, cmd := m.Update(tea.KeyPressMsg{Code: 'c', Mod: tea.ModCtrl})
	if cmd == nil || !m.interrupted {
		t.Error("Ctrl-C does not end the page")
	}
}

func TestState_Limit(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		metrics map[string]float64
		want    string
	}{
		"a rate that is kept":   {map[string]float64{"messages_per_second": 100, "offered_messages_per_second": 100}, bench.LimitRate},
		"a busy PostgreSQL":     {map[string]float64{"messages_per_second": 100, "postgres_cpu_cores": 1.5, "generator_cpu_cores": 0.4}, bench.LimitPostgreSQL},
		"a generator that lags": {map[string]float64{"latency_p99_ms": 10, "generator_late_p99_ms": 5}, bench.LimitGenerator},
		"nothing that is used":  {map[string]float64{"messages_per_second": 100, "postgres_cpu_cores": 0.1}, bench.LimitWaiting},
	} {
		m := setup(80, 24, true)
		m.Update(stage(bench.PhaseMeasured))
		for range 2 * limitTicks {
			m.Update(bench.Tick{Row: "skip-locked", Phase: bench.PhaseMeasured, Seconds: 1, Metrics: c.metrics})
		}
		if got := m.limit(2); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
