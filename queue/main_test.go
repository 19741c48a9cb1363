package queue_test

import (
	"flag"
	"testing"

	"github.com/tidewire/tidewire/internal/pgtest"
)

// TestMain runs more tests at a time than there are processors: most wait, for
// leases to end and messages to be due. Flags on the command line win.
func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", "4"); err != nil {
		panic(err)
	}
	pgtest.Examples()
	pgtest.Main(m)
}
