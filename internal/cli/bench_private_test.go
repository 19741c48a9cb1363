package cli_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/tidewire/tidewire/internal/cli"
)

// TestBench_PrivatePostgreSQL: the data directory of --data-dir is used, and stays.
func TestBench_PrivatePostgreSQL(t *testing.T) {
	t.Parallel()
	data, results := dataDir(t), t.TempDir()
	first := filepath.Join(results, "first.json")
	args := []string{"bench", "pubsub", "--consumer-groups", "0", "--writers", "1", "--duration", "300ms", "--warm-up", "100ms", "--payload", "100"}
	loadedTo(t, first, append(args, "--data-dir", data)...)
	if _, err := os.Stat(data); err != nil {
		t.Errorf("--data-dir has no effect: %v", err)
	}
	code, _, errOut := run(t, nil, "bench", "ingest", "--data-dir", data, "--modes", "auto", "--messages", "1000", "--clients", "1", "--repeat", "1",
		"--out", filepath.Join(results, "third.json"))
	if code != cli.ExitOK {
		t.Fatalf("exit code %d: %s", code, errOut)
	}
	code, _, errOut = run(t, nil, "bench", "ingest", "--data-dir", data, "--modes", "auto", "--messages", "1000", "--clients", "1", "--repeat", "1")
	if code != cli.ExitDatabase {
		t.Errorf("messages that are there are dropped: exit code %d: %s", code, errOut)
	}
}
