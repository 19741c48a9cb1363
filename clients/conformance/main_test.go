// Package conformance_test holds the client libraries to one contract: it runs the scenarios in scenarios/ with each of them. See README.md.
package conformance_test

import (
	"testing"

	"github.com/tidewire/tidewire/internal/pgtest"
)

func TestMain(m *testing.M) {
	pgtest.SideBySide(4)
	pgtest.Main(m)
}
