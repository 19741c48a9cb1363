package eventstore_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/tidewire/tidewire/internal/pgtest"
)

func TestMain(m *testing.M) {
	if url := os.Getenv(asProcess); url != "" {
		fmt.Fprintln(os.Stderr, raceAsProcess(url))
		os.Exit(1)
	}
	pgtest.Examples()
	pgtest.Main(m)
}
