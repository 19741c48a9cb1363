package scenario

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/tidewire/tidewire/internal/pgtest"
)

// partVariable asks the test's program to be a part of a run.
const partVariable = "TIDEWIRE_TEST_PART"

func TestMain(m *testing.M) {
	if os.Getenv(partVariable) == "" {
		pgtest.SideBySide(3)
		pgtest.Main(m)
	}
	if err := RunPart(context.Background(), os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// testPart is the command of a part.
func testPart() *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), partVariable+"=1")
	return cmd
}
