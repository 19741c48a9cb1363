package fault

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// childVariable says that the test binary is a child process, and which.
const childVariable = "TIDEWIRE_FAULT_CHILD"

// patience ends a test that hangs.
const patience = 2 * time.Minute

func TestMain(m *testing.M) {
	child := os.Getenv(childVariable)
	if child == "" {
		goleak.VerifyTestMain(m)
		return
	}
	run := map[string]func(){
		"agent": agentMain, "terminable": terminableMain,
		"sleeper": forever, "parent": parentMain, "net": netMain,
	}[child]
	if run == nil {
		fmt.Fprintln(os.Stderr, "no such child:", child)
		os.Exit(2)
	}
	run()
}

// asChild makes a command run the test binary as a child.
func asChild(cmd *exec.Cmd, child string) *exec.Cmd {
	cmd.Env = append(os.Environ(), childVariable+"="+child, "GORACE=atexit_sleep_ms=0")
	return cmd
}

func childCommand(t *testing.T, child string) *exec.Cmd {
	t.Helper()
	return asChild(exec.Command(self(t)), child)
}

func self(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func start(t *testing.T, cmd *exec.Cmd) *Proc {
	t.Helper()
	p, err := Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	return p
}

// within returns a context that ends a test that hangs.
func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// ok fails the test if an error is not nil.
func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// lineChild is a child that is talked to by its standard input and output, line by line.
type lineChild struct {
	*Proc
	t   *testing.T
	in  *os.File
	out *bufio.Reader
}

func startLines(t *testing.T, cmd *exec.Cmd) *lineChild {
	t.Helper()
	stdin, in, err := os.Pipe()
	ok(t, err)
	out, stdout, err := os.Pipe()
	ok(t, err)
	ok(t, out.SetReadDeadline(time.Now().Add(patience)))
	t.Cleanup(func() { in.Close(); out.Close() })
	cmd.Stdin, cmd.Stdout = stdin, stdout
	s := &lineChild{Proc: start(t, cmd), t: t, in: in, out: bufio.NewReader(out)}
	ok(t, stdin.Close())
	ok(t, stdout.Close())
	return s
}

func (s *lineChild) writeLine(words ...string) {
	s.t.Helper()
	if _, err := fmt.Fprintln(s.in, strings.Join(words, " ")); err != nil {
		s.t.Fatal(err)
	}
}

// readLine returns the next line of the child.
func (s *lineChild) readLine() string {
	s.t.Helper()
	line, err := s.out.ReadString('\n')
	if err != nil {
		s.t.Fatalf("%v after %q; its errors:\n%s", err, line, s.Output())
	}
	return strings.TrimSuffix(line, "\n")
}

func (s *lineChild) ask(words ...string) string {
	s.t.Helper()
	s.writeLine(words...)
	return s.readLine()
}

// expect fails the test if the child's answer is another.
func (s *lineChild) expect(want string, words ...string) {
	s.t.Helper()
	if got := s.ask(words...); got != want {
		s.t.Fatalf("%q: got %q, want %q", words, got, want)
	}
}

// forever waits to be killed.
func forever() {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGUSR1) // or the runtime ends a program in which nothing can happen
	select {}
}

// terminableMain ends with code 0 at SIGTERM.
func terminableMain() {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGTERM)
	fmt.Println("ready")
	<-c
}
