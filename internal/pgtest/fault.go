package pgtest

import (
	"context"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/embedpg"
)

// Seeds returns the number of seeds for a fault test: TIDEWIRE_SEEDS, or 1.
func Seeds() uint64 {
	n, err := strconv.ParseUint(os.Getenv("TIDEWIRE_SEEDS"), 10, 16)
	if err != nil || n == 0 {
		return 1
	}
	return n
}

// Crash kills PostgreSQL with SIGKILL and starts it again.
func Crash(t testing.TB, server *embedpg.Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := server.Kill(ctx); err != nil {
		t.Errorf("kill PostgreSQL: %v", err)
	}
	if err := server.Restart(ctx); err != nil {
		t.Errorf("restart PostgreSQL: %v", err)
	}
}

// Standby starts a streaming standby of a server from Start. It ends with the test.
func Standby(t testing.TB, primary *embedpg.Server) *embedpg.Server {
	t.Helper()
	cfg := config()
	cfg.Primary = primary
	return startFor(t, cfg, start)
}
