// Package conformance_test holds the client libraries to one contract: it runs the scenarios in scenarios/ with each of them. See README.md.
package conformance_test

import (
	"os"
	"testing"

	"github.com/tidewire/tidewire/internal/cli"
	"github.com/tidewire/tidewire/internal/pgtest"
)

// asServer makes the test's own program behave as tidewire.
const asServer = "TIDEWIRE_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asServer) != "" {
		os.Exit(cli.Main())
	}
	pgtest.SideBySide(4)
	pgtest.Main(m)
}
