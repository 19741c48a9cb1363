//go:build unix

package fault

import (
	"context"
	"fmt"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// outputDelay is how long Done waits, after the child has ended, for its output to end: a process that the child has started may hold it open.
const outputDelay = 5 * time.Second

// Proc is a child process. On Linux, the kernel kills it when the test's process ends, however that ends; on other systems it outlives a test's
// process that is killed. Processes that the child has started are not ended with it. It is safe for concurrent use.
type Proc struct {
	cmd    *exec.Cmd
	output tail
	done   chan struct{}
	err    error // written before done is closed

	// stopping serializes Stop and Continue: Stop waits for a state that Continue ends.
	stopping sync.Mutex
}

// Start starts a command that is not started yet, and waits for its end in the background. If neither Stdout nor Stderr has a writer, Output has both;
// if one of them has none, Output has that one. Do not use cmd.StdoutPipe and cmd.StderrPipe: their last bytes may be lost.
func Start(cmd *exec.Cmd) (*Proc, error) {
	p := &Proc{cmd: cmd, done: make(chan struct{})}
	if cmd.Stdout == nil {
		cmd.Stdout = &p.output
	}
	if cmd.Stderr == nil {
		cmd.Stderr = &p.output
	}
	if cmd.WaitDelay == 0 {
		cmd.WaitDelay = outputDelay
	}
	setDeathSignal(cmd)
	started := make(chan error)
	go p.run(started)
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

// run starts the child and waits for its end, both on one thread that it keeps. The kernel sends the death signal (prctl(2), PR_SET_PDEATHSIG) when
// the thread that started the child ends, not when the process ends. The runtime ends threads: that of a goroutine which returns without
// UnlockOSThread, for example. So the child's thread belongs to this goroutine until the child has ended.
func (p *Proc) run(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := p.cmd.Start()
	started <- err
	if err != nil {
		return
	}
	p.err = p.cmd.Wait()
	close(p.done)
}

// Pid returns the process's number. It may be another process's after Done.
func (p *Proc) Pid() int { return p.cmd.Process.Pid }

// Done is closed when the process has ended and its output is read.
func (p *Proc) Done() <-chan struct{} { return p.done }

// Err returns nil until Done is closed, and then what exec.Cmd.Wait has returned: nil if the exit code was 0.
func (p *Proc) Err() error {
	select {
	case <-p.done:
		return p.err
	default:
		return nil
	}
}

// Output returns the last 64 KiB of the output so far.
func (p *Proc) Output() string { return p.output.String() }

// Stop stops the process by SIGSTOP. On Linux all its threads have stopped when Stop returns. It fails if the process has ended.
func (p *Proc) Stop() error {
	p.stopping.Lock()
	defer p.stopping.Unlock()
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return fmt.Errorf("fault: stop process %d: %w", p.Pid(), err)
	}
	return p.awaitStopped()
}

// Continue continues a stopped process by SIGCONT; for one that runs it does nothing. It fails if the process has ended.
func (p *Proc) Continue() error {
	p.stopping.Lock()
	defer p.stopping.Unlock()
	if err := p.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		return fmt.Errorf("fault: continue process %d: %w", p.Pid(), err)
	}
	return nil
}

// Kill kills the process by SIGKILL, if it has not ended, and waits for Done. A stopped process is killed, too.
func (p *Proc) Kill() {
	p.cmd.Process.Kill() // fails only if the process has ended
	<-p.done
}

// Terminate sends SIGTERM, if the process has not ended, and waits for Done. It then returns the same as Err: a process that does not handle the signal
// ends with an *exec.ExitError. If the context ends first, Terminate returns an error that wraps the context's, with the output, and the process
// runs on. A stopped process gets the signal only after Continue.
func (p *Proc) Terminate(ctx context.Context) error {
	p.cmd.Process.Signal(syscall.SIGTERM) // fails only if the process has ended
	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
		return fmt.Errorf("fault: process %d runs after SIGTERM: %w\n%s", p.Pid(), context.Cause(ctx), p.Output())
	}
}
