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

// Config is where and how a run is shown.
type Config struct {
	In     io.Reader           // keys are read from it if it is a terminal
	Out    io.Writer           // what is shown goes there, and what is logged
	Getenv func(string) string // NO_COLOR and TERM count. Defaults to none.
	// Quiet shows nothing but what is logged.
	Quiet bool
	// Every is from one plain line to the next. Defaults to 5 s.
	Every time.Duration
	// Control is what the keys steer. Defaults to one of its own.
	Control *bench.Control
	// Interrupt is called for Ctrl-C, when the terminal is in order again. Defaults
	// to SIGINT for the process group, as the terminal would have sent it.
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

// View shows one run, or several in turn. Its methods are safe for concurrent use
// and wait for no terminal; plain lines are written as they come. Writing to it is
// logging: each Write is of whole lines.
type View struct {
	cfg    Config
	screen *screen // nil: plain lines
	plain  *plain
}

// Start begins to show, until Stop or the end of ctx. A terminal that cannot be
// used means plain lines.
func Start(ctx context.Context, cfg Config) *View {
	cfg = cfg.withDefaults()
	v := &View{cfg: cfg, plain: newPlain(cfg.Out, cfg.Every)}
	if out, in, ok := terminals(cfg); ok {
		v.screen = startScreen(ctx, cfg, in, out)
	}
	cfg.Control.Watch(v.stage)
	return v
}

// terminals returns where to draw, and where keys come from or nil; ok is false
// where plain lines are wanted. A program in the background must not touch the
// terminal: it would be stopped.
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

// Control is what the keys steer.
func (v *View) Control() *bench.Control { return v.cfg.Control }

// Observe shows a Tick: it is what Recording.Observe wants.
func (v *View) Observe(t bench.Tick) {
	if !v.send(t) && !v.cfg.Quiet {
		v.plain.tick(t)
	}
}

func (v *View) stage(s bench.Stage) { v.send(s) }

// Progress shows a line about what goes on.
func (v *View) Progress(format string, args ...any) {
	if !v.cfg.Quiet {
		fmt.Fprintf(v, format+"\n", args...)
	}
}

// Write shows lines of a log, also if the view is quiet.
func (v *View) Write(text []byte) (int, error) {
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		if v.screen != nil && v.screen.line(line) {
			continue
		}
		if err := v.plain.line(line); err != nil {
			return 0, err
		}
	}
	return len(text), nil
}

// send reports whether the page is there to show it.
func (v *View) send(msg any) bool { return v.screen != nil && v.screen.send(msg) }

// Stop closes the page: the terminal is as it was before. Lines that come later
// are written as they are. It may be called more than once.
func (v *View) Stop() {
	if v.screen != nil {
		v.screen.stop()
	}
	v.plain.flush()
}
