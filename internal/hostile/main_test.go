package hostile

import (
	"os"
	"testing"

	"github.com/tidewire/tidewire/internal/cli"
	"github.com/tidewire/tidewire/internal/pgtest"
)

// asProgram makes the test's own program behave as tidewire, which so is built
// as the tests are: with the race detector.
const asProgram = "TIDEWIRE_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		os.Exit(cli.Main())
	}
	if os.Getenv(attackersOf) != "" { // it leaves a read of its input
		os.Exit(m.Run())
	}
	pgtest.Main(m)
}
