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

// command runs as the account, in a session of its own: a Ctrl-C on the
// terminal reaches tidewire only, which then stops PostgreSQL last. The end of
// ctx kills the whole session, because initdb alone would leave its children
// writing.
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

// output runs a command to its end and returns what it said.
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

// lastLines is enough to tell why PostgreSQL failed, and not so much that it
// buries the message around it.
func lastLines(said []byte) string {
	lines := strings.Split(strings.TrimSpace(string(said)), "\n")
	return strings.Join(lines[max(0, len(lines)-15):], "\n")
}

// poll calls done until it says so, ever less often up to 50 ms, or until ctx
// ends.
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
