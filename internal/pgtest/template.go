package pgtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/tidewire/tidewire/internal/embedpg"
)

// prepared is a new cluster, which each server of the tests gets a copy of: initdb takes 0.7 s of processor time,
// and a copy a tenth of it. It stays in the folder of the fetched binaries for a day: PostgreSQL may be updated.
var prepared = sync.OnceValue(func() (dataDir string) {
	name := strings.NewReplacer("/", "-", ":", "-").Replace("cluster-" + cmp.Or(os.Getenv("TIDEWIRE_TEST_PG"), "newest"))
	path := filepath.Join(embedpg.DefaultCacheDir(os.Getenv), "test", name)
	if isFresh(path) {
		return path
	}
	if err := prepare(path); err != nil {
		fmt.Fprintln(os.Stderr, "pgtest: each server has to run initdb:", err)
		return ""
	}
	return path
})

// isFresh reports whether a prepared cluster exists whose binaries have not changed since.
func isFresh(dataDir string) bool {
	made, err := os.Stat(dataDir)
	if err != nil || time.Since(made.ModTime()) > 24*time.Hour {
		return false
	}
	options, err := os.ReadFile(filepath.Join(dataDir, "pgdata", "postmaster.opts")) // begins with the path of postgres
	binary, _, _ := strings.Cut(string(options), " ")
	info, missing := os.Stat(binary)
	return err == nil && missing == nil && info.ModTime().Before(made.ModTime())
}

// prepare makes a cluster, and puts it at the path when it is complete: other processes may do the same.
func prepare(path string) error {
	inst, err := startNew(config(), MemoryDir())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	err = inst.server.Stop(ctx)
	if err == nil {
		err = keep(inst.server.DataDir(), path)
	}
	return errors.Join(err, inst.guard.dismiss(), os.RemoveAll(inst.dir))
}

// keep copies a data directory to the path.
func keep(dataDir, path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	tmp, err := os.MkdirTemp(filepath.Dir(path), "new-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	made, now := filepath.Join(tmp, "db"), time.Now()
	err = copyData(dataDir, made)
	if err := errors.Join(err, os.Remove(filepath.Join(made, "postgres.log")), os.Chtimes(made, now, now), os.RemoveAll(path)); err != nil {
		return err
	}
	if err := os.Rename(made, path); err != nil && !isFresh(path) {
		return err
	}
	return nil
}

// copyData copies a data directory with its owners and modes.
func copyData(from, to string) error {
	if out, err := exec.Command("cp", "-RPp", from, to).CombinedOutput(); err != nil {
		return fmt.Errorf("copy a data directory: %w: %s", err, out)
	}
	return nil
}
