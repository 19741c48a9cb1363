package live

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/charmbracelet/x/term"
	"golang.org/x/sys/unix"

	"github.com/tidewire/tidewire/internal/bench"
)

// Config says where and how to show a run.
type Config struct {
	In     io.Reader           // if it is a terminal, keys are read from it
	Out    io.Writer           // for the view and the log
	Getenv func(string) string // for NO_COLOR and TERM. Defaults to no variables.
	// Quiet shows only the log.
	Quiet bool
	// Every is the time between two plain lines. Defaults to 5 s.
	Every time.Duration
	// Events writes each line, step and tick as an Event, for a program that watches the run, and nothing for people.
	Events bool
	// Control is steered by the keys. Defaults to a new Control.
	Control *bench.Control
	// Interrupt is called for Ctrl-C after the terminal was restored. Defaults to
	// SIGINT for the process group, which the terminal would have sent.
	Interrupt func()
}

func (c Config) withDefaults() Config {
	if c.Getenv == nil {
		c.Getenv = func(string) string { return "" }
	}
	if c.Control == nil {
		c.Control = new(bench.Control)
	}
	if c.Interrupt == nil {
		c.Interrupt = func() { syscall.Kill(0, syscall.SIGINT) }
	}
	c.Every = cmp.Or(c.Every, 5*time.Second)
	return c
}

// View shows one run, or several one after the other. Its methods are safe for
// concurrent use and never wait for a terminal; plain lines are written at once.
// Each Write to it logs whole lines.
type View struct {
	cfg    Config
	screen *screen // nil: plain lines, or events
	events *events // nil unless they are wanted
	plain  *plain
}

// Start starts to show the run, until Stop or the end of ctx. If the terminal
// cannot be used, it prints plain lines.
func Start(ctx context.Context, cfg Config) *View {
	cfg = cfg.withDefaults()
	v := &View{cfg: cfg, plain: newPlain(cfg.Out, cfg.Every)}
	if cfg.Events {
		v.events = &events{out: cfg.Out}
	} else if out, in, ok := terminals(cfg); ok {
		v.screen = startScreen(ctx, cfg, in, out)
	}
	cfg.Control.Watch(v.stage)
	return v
}

// terminals returns the terminal to draw on, and the one to read keys from or
// nil. ok is false if plain lines are wanted. A program in the background must
// not use the terminal: the system would stop it.
func terminals(cfg Config) (out, in *os.File, ok bool) {
	out, ok = cfg.Out.(*os.File)
	if !ok || cfg.Quiet || cfg.Getenv("NO_COLOR") != "" || cfg.Getenv("TERM") == "dumb" || !term.IsTerminal(out.Fd()) {
		return nil, nil, false
	}
	if group, err := unix.IoctlGetInt(int(out.Fd()), unix.TIOCGPGRP); err != nil || group != unix.Getpgrp() {
		return nil, nil, false
	}
	if in, ok = cfg.In.(*os.File); !ok || !term.IsTerminal(in.Fd()) {
		in = nil
	}
	return out, in, true
}

// Control returns the Control that the keys steer.
func (v *View) Control() *bench.Control { return v.cfg.Control }

// Observe shows a Tick. Pass it to Recording.Observe.
func (v *View) Observe(t bench.Tick) {
	if v.events != nil {
		v.events.write(Event{Tick: &t}) // the watcher has gone: the run goes on
		return
	}
	if !v.send(t) && !v.cfg.Quiet {
		v.plain.tick(t)
	}
}

func (v *View) stage(s bench.Stage) {
	if v.events != nil {
		v.events.write(Event{Step: &Step{Row: s.Row, Number: s.Number, Of: s.Of, Phase: s.Phase}})
		return
	}
	v.send(s)
}

// Progress shows a line about the progress.
func (v *View) Progress(format string, args ...any) {
	if !v.cfg.Quiet {
		fmt.Fprintf(v, format+"\n", args...)
	}
}

// Write shows lines of a log, also if the view is quiet.
func (v *View) Write(text []byte) (int, error) {
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		if v.events != nil {
			if err := v.events.write(Event{Line: line}); err != nil {
				return 0, err
			}
			continue
		}
		if v.screen != nil && v.screen.line(line) {
			continue
		}
		if err := v.plain.line(line); err != nil {
			return 0, err
		}
	}
	return len(text), nil
}

// send reports whether the page is open to show the message.
func (v *View) send(msg any) bool { return v.screen != nil && v.screen.send(msg) }

// Stop closes the page and restores the terminal. Later lines are written
// directly. It may be called more than once.
func (v *View) Stop() {
	if v.screen != nil {
		v.screen.stop()
	}
	v.plain.flush()
}
