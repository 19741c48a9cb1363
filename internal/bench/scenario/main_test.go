package scenario

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/tidewire/tidewire/internal/pgtest"
)

// workerVariable makes the test's program a worker process of a run.
const workerVariable = "TIDEWIRE_TEST_PART"

func TestMain(m *testing.M) {
	if os.Getenv(workerVariable) == "" {
		pgtest.SideBySide(3)
		pgtest.Main(m)
	}
	if err := RunPart(context.Background(), os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// testWorker is the command of a worker process.
func testWorker() *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), workerVariable+"=1")
	return cmd
}
