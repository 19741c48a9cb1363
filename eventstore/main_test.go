package eventstore_test

import (
	"testing"

	"github.com/tidewire/tidewire/internal/pgtest"
)

func TestMain(m *testing.M) {
	pgtest.Examples()
	pgtest.Main(m)
}
