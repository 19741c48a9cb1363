package live

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/tidewire/tidewire/internal/bench"
)

const (
	// framesPerSecond is high enough for a quick response to keys, and costs little.
	framesPerSecond = 10
	// waiting is the number of messages that may wait for the terminal before some are dropped.
	waiting = 256
	// linesKept is the number of log lines that are written out when the page closes.
	linesKept = 500
)

// line is a line of the log.
type line string

// screen is the page on a terminal.
type screen struct {
	out     io.Writer
	program *tea.Program
	in      chan any
	ended   chan struct{} // closed when the terminal is restored

	forwarding sync.WaitGroup

	mu      sync.Mutex // guards the fields below
	closed  bool
	lines   []string // not written out yet
	dropped int      // number of earlier lines that were dropped
}

// startScreen opens the page. Without keys, no keys are read.
func startScreen(ctx context.Context, cfg Config, keys, out *os.File) *screen {
	var input io.Reader // a nil *os.File would not be nil
	if keys != nil {
		input = keys
	}
	m := newModel(cfg.Control, bench.CaptureEnvironment(ctx), keys != nil)
	s := &screen{out: out, in: make(chan any, waiting), ended: make(chan struct{})}
	s.program = tea.NewProgram(m, tea.WithInput(input), tea.WithOutput(out), tea.WithoutSignalHandler(), tea.WithFPS(framesPerSecond))
	stopWatching := context.AfterFunc(ctx, s.program.Quit)
	s.forwarding.Go(s.forward)
	go func() {
		_, err := s.program.Run()
		stopWatching()
		s.close()
		if err != nil {
			fmt.Fprintf(out, "the live view ended: %v\n", err)
		}
		close(s.ended)
		if m.interrupted {
			cfg.Interrupt()
		}
	}()
	return s
}

// forward passes messages and the seconds to the page, so that senders never
// wait.
func (s *screen) forward() {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case msg := <-s.in:
			s.program.Send(msg)
		case now := <-tick.C:
			s.program.Send(second(now))
		case <-s.ended:
			return
		}
	}
}

// send reports whether the page is open. If the page lags too much, the message is dropped.
func (s *screen) send(msg any) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	select {
	case s.in <- msg:
	default:
	}
	return true
}

// line reports whether the page is open, and keeps the line until it closes.
func (s *screen) line(text string) bool {
	if !s.send(line(text)) {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed { // closed since send
		return false
	}
	s.lines = append(s.lines, text)
	if extra := len(s.lines) - linesKept; extra > 0 {
		s.lines = append(s.lines[:0], s.lines[extra:]...)
		s.dropped += extra
	}
	return true
}

// close writes the lines out, since the page that showed them is gone.
func (s *screen) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.dropped > 0 {
		fmt.Fprintf(s.out, "(%d lines before)\n", s.dropped)
	}
	for _, l := range s.lines {
		fmt.Fprintln(s.out, l)
	}
}

func (s *screen) stop() {
	s.program.Quit()
	<-s.ended
	s.forwarding.Wait()
}
