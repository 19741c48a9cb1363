package scenario

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// ServerProcess is a server under test. It is a separate process, so that its
// CPU time and memory can be told from the generator's.
type ServerProcess struct {
	cmd  *exec.Cmd
	port string
	tls  bool // it serves TLS
	tail *tail
	done chan error
	// statistics has what the server printed as "Name: number" when it stopped.
	// Only the goroutine that reads its output uses it, until done reports the
	// end.
	statistics map[string]float64
}

// StartServer runs a program that prints "listening on HOST:PORT", with https:// before it if it serves TLS, when it is
// ready, and waits for that line.
func StartServer(ctx context.Context, log io.Writer, env []string, program string, args ...string) (*ServerProcess, error) {
	s := &ServerProcess{cmd: exec.Command(program, args...), tail: &tail{out: log}, done: make(chan error, 1), statistics: make(map[string]float64)}
	s.cmd.Env = append(os.Environ(), env...)
	s.cmd.Stderr = s.tail
	stdout, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := s.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start server: %w", err)
	}
	type listening struct {
		port string
		tls  bool
	}
	ready := make(chan listening, 1)
	go func() {
		lines := bufio.NewScanner(stdout)
		for lines.Scan() {
			if address, ok := strings.CutPrefix(lines.Text(), "listening on "); ok { // other servers may print no host
				ready <- listening{address[strings.LastIndexByte(address, ':')+1:], strings.HasPrefix(address, "https://")}
				continue
			}
			s.note(lines.Text())
		}
		close(ready)
		s.done <- s.cmd.Wait()
	}()
	select {
	case address, ok := <-ready:
		if !ok {
			return nil, fmt.Errorf("server ended before it was ready: %v\n%s", <-s.done, s.tail.last())
		}
		s.port, s.tls = address.port, address.tls
		return s, nil
	case <-ctx.Done():
		s.Stop()
		return nil, ctx.Err()
	case <-time.After(30 * time.Second):
		s.Stop()
		return nil, fmt.Errorf("server was not ready within 30 s\n%s", s.tail.last())
	}
}

func (s *ServerProcess) note(line string) {
	name, value, _ := strings.Cut(line, ": ")
	if n, err := strconv.ParseFloat(value, 64); err == nil {
		s.statistics[name] = n
	}
}

// Statistic returns a figure that the server printed when it stopped. Call it
// after Stop.
func (s *ServerProcess) Statistic(name string) (value float64, ok bool) {
	value, ok = s.statistics[name]
	return value, ok
}

// pid returns the PID, or 0 for a nil ServerProcess.
func (s *ServerProcess) pid() int {
	if s == nil {
		return 0
	}
	return s.PID()
}

// PID of the process.
func (s *ServerProcess) PID() int { return s.cmd.Process.Pid }

// Address returns the address that the server listens on.
func (s *ServerProcess) Address() string { return "127.0.0.1:" + s.port }

// URL of a WebSocket path on the server.
func (s *ServerProcess) URL(path string) string {
	if s.tls {
		return "wss://" + s.Address() + path
	}
	return "ws://" + s.Address() + path
}

// Stop asks the process to end and waits. An exit code other than 0 is an
// error.
func (s *ServerProcess) Stop() error {
	s.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case err := <-s.done:
		if err != nil {
			return fmt.Errorf("server: %w\n%s", err, s.tail.last())
		}
		return nil
	case <-time.After(time.Minute):
		s.cmd.Process.Kill()
		return fmt.Errorf("server did not stop within a minute\n%s", s.tail.last())
	}
}

// tail passes on the output of a process, if there is a writer for it, and
// keeps its end for error messages.
type tail struct {
	out  io.Writer
	text []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.text = append(t.text, p...)
	if excess := len(t.text) - 2000; excess > 0 {
		t.text = append(t.text[:0], t.text[excess:]...)
	}
	if t.out != nil {
		return t.out.Write(p)
	}
	return len(p), nil
}

func (t *tail) last() string { return strings.TrimSpace(string(t.text)) }
