package testbin

import (
	"bytes"
	"net"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	// patience bounds what a process is waited for: a test that passes does not reach it.
	patience = time.Minute
	// keep bounds the output that is kept, in bytes: of a process that prints without end, the beginning says enough.
	keep = 8 << 20
)

// Process is a program that a test runs. It is killed when the test ends, and its output is logged if the test has failed.
type Process struct {
	Cmd  *exec.Cmd
	Done chan struct{} // closed when it has ended
	Addr string        // where it listens, if Serve started it

	mu      sync.Mutex
	text    bytes.Buffer
	changed chan struct{} // closed and replaced when it prints
}

// Launch starts a program without the variables of the environment that name a database.
func Launch(t testing.TB, cmd *exec.Cmd) *Process {
	t.Helper()
	p := &Process{Cmd: cmd, Done: make(chan struct{}), changed: make(chan struct{})}
	cmd.Env = slices.DeleteFunc(cmd.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "DATABASE_") || strings.HasPrefix(v, "PG")
	})
	cmd.Stdout, cmd.Stderr = p, p
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { cmd.Wait(); close(p.Done) }()
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("%v said:\n%.20000s", cmd.Args[1:], p.Log())
		}
	})
	return p
}

// Serve starts a program that prints "listening on" and its address, and waits for that.
func Serve(t testing.TB, cmd *exec.Cmd) *Process {
	t.Helper()
	p := Launch(t, cmd)
	address := p.Await(t, "listening on ")
	_, port, err := net.SplitHostPort(address[strings.LastIndex(address, "/")+1:])
	if err != nil {
		t.Fatal(err)
	}
	p.Addr = "127.0.0.1:" + port
	return p
}

// Write takes what the process prints.
func (p *Process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.changed)
	p.changed = make(chan struct{})
	p.text.Write(b[:min(len(b), max(0, keep-p.text.Len()))])
	return len(b), nil
}

// Log returns what the process has printed.
func (p *Process) Log() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String()
}

// Await waits until the process has printed a text, and returns what follows on the line.
func (p *Process) Await(t testing.TB, text string) (rest string) {
	t.Helper()
	late := time.After(patience)
	for {
		p.mu.Lock()
		_, after, found := strings.Cut(p.text.String(), text)
		changed := p.changed
		p.mu.Unlock()
		rest, _, whole := strings.Cut(after, "\n")
		if found && (whole || strings.HasSuffix(text, "\n")) {
			return rest
		}
		select {
		case <-changed:
		case <-p.Done:
			if !strings.Contains(p.Log(), text) {
				t.Fatalf("the process ended with code %d before it said %q", p.Cmd.ProcessState.ExitCode(), text)
			}
			return rest
		case <-late:
			t.Fatalf("the process does not say %q", text)
		}
	}
}

// Kill ends the process at once.
func (p *Process) Kill() {
	p.Cmd.Process.Kill()
	<-p.Done
}

// Stop sends SIGTERM and returns the exit code.
func (p *Process) Stop(t testing.TB) int {
	t.Helper()
	p.Cmd.Process.Signal(syscall.SIGTERM)
	return p.Wait(t)
}

// Wait waits for the end of the process, and returns the exit code.
func (p *Process) Wait(t testing.TB) int {
	t.Helper()
	select {
	case <-p.Done:
	case <-time.After(patience):
		t.Fatalf("the process did not end within %v", patience)
	}
	return p.Cmd.ProcessState.ExitCode()
}
