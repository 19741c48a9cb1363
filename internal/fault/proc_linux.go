package fault

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// setDeathSignal has the kernel kill the child when the thread that starts it ends.
func setDeathSignal(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
}

// awaitStopped returns when all threads of the process have stopped. The kernel stops them one by one, so it asks again and again; the state is left
// for the next call (WNOWAIT).
func (p *Proc) awaitStopped() error {
	for {
		var info unix.Siginfo
		err := unix.Waitid(unix.P_PID, p.Pid(), &info, unix.WSTOPPED|unix.WNOWAIT|unix.WNOHANG, nil)
		switch {
		case err == nil && info.Signo == int32(unix.SIGCHLD):
			return nil
		case errors.Is(err, unix.ECHILD): // it has ended
			return fmt.Errorf("fault: stop process %d: %w", p.Pid(), os.ErrProcessDone)
		case err != nil && !errors.Is(err, unix.EINTR):
			return fmt.Errorf("fault: stop process %d: %w", p.Pid(), err)
		}
		select {
		case <-p.done:
			return fmt.Errorf("fault: stop process %d: %w", p.Pid(), os.ErrProcessDone)
		case <-time.After(time.Millisecond):
		}
	}
}
