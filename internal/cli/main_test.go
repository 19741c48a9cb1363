package cli_test

import (
	"os"
	"slices"
	"testing"

	"github.com/tidewire/tidewire/internal/cli"
	"github.com/tidewire/tidewire/internal/pgtest"
)

// asProgram makes the test's own program behave as tidewire: tests, and the
// benchmarks under test, start it as a separate process.
const asProgram = "TIDEWIRE_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if addr := os.Getenv(asConsumer); addr != "" {
		os.Exit(consume(addr))
	}
	if os.Getenv(asProgram) != "" && !slices.Contains(os.Args, "-test.fuzzworker") { // a fuzz target's processes inherit it
		os.Exit(cli.Main())
	}
	os.Setenv(asProgram, "1") // for the processes that this one starts
	pgtest.SideBySide(3)
	pgtest.Main(m)
}
