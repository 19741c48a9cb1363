package queue_test

import (
	"testing"

	"github.com/tidewire/tidewire/internal/pgtest"
)

// TestMain runs more tests at a time than there are processors: most wait, for leases to end and messages to be due.
func TestMain(m *testing.M) {
	pgtest.SideBySide(2)
	pgtest.Examples()
	pgtest.Main(m)
}
