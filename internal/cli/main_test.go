package cli_test

import (
	"os"
	"testing"

	"github.com/tidewire/tidewire/internal/pgtest"
)

func TestMain(m *testing.M) {
	if addr := os.Getenv(asConsumer); addr != "" {
		os.Exit(consume(addr))
	}
	pgtest.SideBySide(3)
	pgtest.Main(m)
}
