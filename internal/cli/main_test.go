package cli_test

import (
	"flag"
	"os"
	"runtime"
	"strconv"
	"testing"

	"github.com/tidewire/tidewire/internal/cli"
	"github.com/tidewire/tidewire/internal/pgtest"
)

// asProgram makes the test's own program behave as tidewire: tests start it as
// a process of its own, and so do the benchmarks under test.
const asProgram = "TIDEWIRE_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if addr := os.Getenv(asConsumer); addr != "" {
		os.Exit(consume(addr))
	}
	if os.Getenv(asProgram) != "" {
		os.Exit(cli.Main())
	}
	os.Setenv(asProgram, "1") // for the processes that this one starts
	sideBySide()
	pgtest.Main(m)
}

// atOnce is how many parallel tests run side by side on each processor: most of them
// wait for processes, time-outs and loads of a fixed rate.
const atOnce = 3

// sideBySide has as many tests run at a time, unless -parallel says otherwise.
func sideBySide() {
	flag.Parse()
	asked := false
	flag.Visit(func(f *flag.Flag) { asked = asked || f.Name == "test.parallel" })
	if !asked {
		flag.Set("test.parallel", strconv.Itoa(atOnce*runtime.GOMAXPROCS(0)))
	}
}
