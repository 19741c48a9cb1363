// Package testbin builds programs for tests that run them as processes: as users have them. The race detector would
// take several times the processor time, and what it can find, the tests of the packages find within their own process.
package testbin

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
)

// Race is the environment variable that, with any value, builds the programs with the race detector all the same.
const Race = "TIDEWIRE_TEST_RACE"

var built = struct {
	sync.Mutex
	paths map[string]string
}{paths: make(map[string]string)}

// Tidewire returns the path of the program tidewire.
func Tidewire() (string, error) { return Build("", "./cmd/tidewire") }

// Build builds a package of the module in a folder of the checkout, once a process, and returns the path of the program.
// Each test package has its own copy in .cache/testbin: a program cannot be written while it runs.
func Build(folder, pkg string, flags ...string) (string, error) {
	built.Lock()
	defer built.Unlock()
	key := folder + " " + pkg
	if path := built.paths[key]; path != "" {
		return path, nil
	}
	root, err := checkout()
	if err != nil {
		return "", err
	}
	path := filepath.Join(root, ".cache", "testbin", filepath.Base(os.Args[0]), filepath.Join(folder, pkg))
	if os.Getenv(Race) != "" {
		flags = append(flags, "-race")
	}
	build := exec.Command("go", append(append([]string{"build", "-buildvcs=false", "-ldflags=-s", "-o", path}, flags...), pkg)...)
	build.Dir = filepath.Join(root, folder)
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", pkg, err, out)
	}
	built.paths[key] = path
	return path, nil
}

// checkout returns the folder of the module of this package.
func checkout() (string, error) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/tidewire/tidewire").Output()
	if err != nil {
		return "", fmt.Errorf("find the checkout: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}
