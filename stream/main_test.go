package stream_test

import (
	"flag"
	"testing"

	"github.com/tidewire/tidewire/internal/pgtest"
)

// TestMain runs more tests in parallel than there are processors, because most wait
// for heartbeats and for PostgreSQL. A flag on the command line takes precedence.
func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", "4"); err != nil {
		panic(err)
	}
	pgtest.Examples()
	pgtest.Main(m)
}
