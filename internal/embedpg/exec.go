package embedpg

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// command returns a command that runs as the account, in its own process group: a
// Ctrl-C on the terminal reaches only tidewire, which then stops PostgreSQL last. The
// end of ctx kills the whole group, because children of a killed initdb would continue
// to write.
func (a account) command(ctx context.Context, env []string, path string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = env
	cmd.Dir = "/" // ours may be one that the account cannot enter
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if a.other {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: a.uid, Gid: a.gid}
	}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 2 * time.Second
	return cmd
}

// output runs a command to its end and returns its last lines of output.
func output(cmd *exec.Cmd) (string, error) {
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	err := cmd.Run()
	text := lastLines(said.Bytes())
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return text, fmt.Errorf("%w:\n%s", err, text)
	}
	return text, err
}

// lastLines returns the last 15 lines: enough to see why PostgreSQL failed, and few
// enough for an error message.
func lastLines(said []byte) string {
	lines := strings.Split(strings.TrimSpace(string(said)), "\n")
	return strings.Join(lines[max(0, len(lines)-15):], "\n")
}

// poll calls done until it returns true or an error, or until ctx ends. The pauses
// grow exponentially from 2 ms to 50 ms.
func poll(ctx context.Context, done func() (bool, error)) error {
	pause := 2 * time.Millisecond
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		timer.Reset(pause)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
		}
		pause = min(pause*3/2, 50*time.Millisecond)
	}
}

// tail reads the end of a log file from offset on.
func tail(path string, offset int64) string {
	f, err := os.Open(path)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	const most = 8 << 10
	if info, err := f.Stat(); err == nil {
		offset = max(offset, info.Size()-most)
	}
	buf := make([]byte, most)
	n, _ := f.ReadAt(buf, offset) // io.EOF is the usual end
	return lastLines(buf[:n])
}
