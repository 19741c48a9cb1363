package live

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/bench"
)

// show opens a page on the terminal and waits until it is drawn.
func show(t *testing.T, ctx context.Context, p *pty, cfg Config) *View {
	t.Helper()
	cfg.In, cfg.Out = p.terminal, p.terminal
	cfg = cfg.withDefaults()
	v := &View{cfg: cfg, plain: newPlain(cfg.Out, cfg.Every), screen: startScreen(ctx, cfg, p.terminal, p.terminal)}
	cfg.Control.Watch(v.stage)
	p.wait(t, "\x1b[?1049h")
	p.wait(t, "tidewire bench")
	if p.settings(t) == p.before {
		t.Error("keys have to be followed by Enter")
	}
	return v
}

func TestScreen_RestoredAtTheEnd(t *testing.T) {
	t.Parallel()
	p := openPTY(t)
	v := show(t, t.Context(), p, Config{})
	v.Observe(recorded(0))
	p.wait(t, "12,000/s")
	v.Progress("round %d", 1)
	p.wait(t, "round 1")
	v.Stop()
	p.restored(t)
	v.Progress("and %s", "later")
	p.wait(t, "and later\r\n")
	_, after, _ := strings.Cut(p.text(), "\x1b[?1049l")
	if !strings.Contains(after, "round 1\r\n") {
		t.Errorf("the log is gone: %q", after)
	}
	v.Stop() // again
}

// TestScreen_RestoredWhenTheContextEnds: a signal, for example, ends the run's
// context.
func TestScreen_RestoredWhenTheContextEnds(t *testing.T) {
	t.Parallel()
	p := openPTY(t)
	ctx, cancel := context.WithCancel(t.Context())
	v := show(t, ctx, p, Config{})
	cancel()
	select {
	case <-v.screen.ended:
		p.restored(t)
	case <-time.After(20 * time.Second):
		t.Error("the page is still open")
	}
	v.Stop()
}

func TestScreen_CtrlCIsPassedOnAfterItIsRestored(t *testing.T) {
	t.Parallel()
	p := openPTY(t)
	interrupted := make(chan bool, 1)
	v := show(t, t.Context(), p, Config{Interrupt: func() { interrupted <- p.settings(t) == p.before }})
	p.press(t, "\x03")
	select {
	case restored := <-interrupted:
		if !restored {
			t.Error("interrupted before the terminal was restored")
		}
	case <-time.After(20 * time.Second):
		t.Fatal("not interrupted")
	}
	p.restored(t)
	v.Stop()
}

func TestScreen_KeysSteerTheRun(t *testing.T) {
	t.Parallel()
	p := openPTY(t)
	control := new(bench.Control)
	v := show(t, t.Context(), p, Config{Control: control})
	result := bench.NewResult("queue", nil)
	var ran []string
	steps := []bench.Step{{Row: "first"}, {Row: "second"}, {Row: "third"}, {Row: "fourth"}}
	err := control.Run(t.Context(), result, steps, func(ctx context.Context, s bench.Step) error {
		ran = append(ran, s.Row)
		p.wait(t, s.Row)
		switch s.Row {
		case "first":
			p.press(t, "s")
		case "third":
			p.press(t, "q")
		default:
			result.Check(s.Row, true, "")
			result.AddTrial(s.Row, "", map[string]float64{"seconds": 1})
			return nil
		}
		<-ctx.Done()
		return ctx.Err()
	})
	if err != nil || strings.Join(ran, " ") != "first second third" {
		t.Errorf("ran %v: %v", ran, err)
	}
	if result.Finish(); !result.Valid || result.Row("second").Metrics == nil || result.Row("first").Metrics != nil {
		t.Errorf("%+v", result)
	}
	v.Stop()
	p.restored(t)
}

// TestTerminals_PlainWhereNoPageCanBe also covers a terminal that this process does not control.
func TestTerminals_PlainWhereNoPageCanBe(t *testing.T) {
	t.Parallel()
	p := openPTY(t)
	for name, env := range map[string]map[string]string{
		"NO_COLOR": {"NO_COLOR": "1"}, "dumb": {"TERM": "dumb"}, "not in its foreground": {"TERM": "xterm"},
	} {
		cfg := Config{In: p.terminal, Out: p.terminal, Getenv: func(key string) string { return env[key] }}
		if _, _, ok := terminals(cfg.withDefaults()); ok {
			t.Errorf("%s: a page", name)
		}
	}
	if _, _, ok := terminals(Config{Out: &bytes.Buffer{}}.withDefaults()); ok {
		t.Error("a page in a buffer")
	}
}
