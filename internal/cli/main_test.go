package cli_test

import (
	"testing"

	"github.com/tidewire/tidewire/internal/pgtest"
)

func TestMain(m *testing.M) {
	pgtest.SideBySide(3)
	pgtest.Main(m)
}
