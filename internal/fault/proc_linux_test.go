package fault

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"
)

// parentMain starts a sleeper, which holds the same pipe, and then waits to be killed.
func parentMain() {
	path, err := os.Executable()
	exitOn(err)
	cmd := asChild(exec.Command(path), "sleeper")
	cmd.ExtraFiles = []*os.File{os.NewFile(3, "pipe")}
	_, err = Start(cmd)
	exitOn(err)
	fmt.Println("ready")
	forever()
}

// TestProcDiesWithParent: a child does not outlive a parent that is killed. The pipe ends when no process holds it.
func TestProcDiesWithParent(t *testing.T) {
	for _, stopped := range []bool{false, true} {
		r, w, err := os.Pipe()
		ok(t, err)
		defer r.Close()
		cmd := childCommand(t, "parent")
		cmd.ExtraFiles = []*os.File{w}
		s := startLines(t, cmd)
		ok(t, w.Close())
		s.readLine()
		if stopped {
			ok(t, s.Stop())
		}
		s.Kill()
		ok(t, r.SetReadDeadline(time.Now().Add(patience)))
		if _, err := r.Read(make([]byte, 1)); err != io.EOF {
			t.Fatal(err)
		}
	}
}
