package fault

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// silentAgent is an agent that serves nothing, so that many of them can run on one machine.
func silentAgent(t *testing.T) *lineChild {
	t.Helper()
	cmd := childCommand(t, "agent")
	cmd.Env = append(cmd.Env, "TIDEWIRE_FAULT_SILENT=1")
	s := startLines(t, cmd)
	if got := s.readLine(); got != "ready" {
		t.Fatal(got)
	}
	return s
}

func await(t *testing.T, p *Proc) {
	t.Helper()
	select {
	case <-p.Done():
	case <-within(t).Done():
		t.Fatalf("process %d does not end", p.Pid())
	}
}

func signalOf(err error) syscall.Signal {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return 0
	}
	return exit.Sys().(syscall.WaitStatus).Signal()
}

func TestProcStopAndContinue(t *testing.T) {
	s := silentAgent(t)
	for range 3 {
		ok(t, s.Stop())
		ok(t, s.Stop())
		s.writeLine("ping")
		ok(t, s.Continue())
		ok(t, s.Continue())
		if got := s.readLine(); got != "pong" {
			t.Fatal(got)
		}
	}
}

func TestProcKill(t *testing.T) {
	s := silentAgent(t)
	if err := s.Err(); err != nil {
		t.Fatal(err)
	}
	ok(t, s.Stop()) // a stopped process can be killed, too
	s.Kill()
	s.Kill()
	await(t, s.Proc)
	if got := signalOf(s.Err()); got != syscall.SIGKILL {
		t.Fatalf("%v: signal %v", s.Err(), got)
	}
	for _, err := range []error{s.Stop(), s.Continue()} {
		if !errors.Is(err, os.ErrProcessDone) {
			t.Errorf("after the end: %v", err)
		}
	}
	if err := s.Terminate(t.Context()); signalOf(err) != syscall.SIGKILL {
		t.Errorf("Terminate after the end: %v", err)
	}
}

func TestProcTerminate(t *testing.T) {
	s := startLines(t, childCommand(t, "terminable"))
	s.readLine()
	if err := s.Terminate(within(t)); err != nil {
		t.Fatal(err)
	}
	if err := s.Err(); err != nil {
		t.Fatal(err)
	}
}
