package cli

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// toolchain describes how to make release builds of a language.
type toolchain struct {
	needs string // the program that must be installed
	// command runs in the contender's folder. NAME stands for the name of that
	// folder.
	command []string
	program string // the built program, relative to the folder
}

// Release builds are optimised as usual for the language, and have no symbols.
// The programs are in other folders than those of the tests.
var (
	goTools = toolchain{
		needs:   "go",
		command: []string{"go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", "bin/release/NAME", "."},
		program: "bin/release/NAME",
	}
	cargoTools = toolchain{
		needs:   "cargo",
		command: []string{"cargo", "build", "--release", "--locked", "--target-dir", "target"},
		program: "target/release/NAME",
	}
	// The compiler comes from PyPI. Each contender chooses its release mode
	// itself.
	zigTools = toolchain{
		needs:   "python3",
		command: []string{"../../scripts/zig.sh", "build", "--release", "--prefix", "bin/release", "--prefix-exe-dir", "."},
		program: "bin/release/NAME",
	}
)

// maxSaid is the number of lines of a failed compiler's output that are shown.
const maxSaid = 20

// build makes the contender's program if it is missing or older than its
// sources, and returns its path. If it cannot be built, missing says why. The
// error is for other failures.
func (c contender) build(p *process, dir string, progress io.Writer) (program, missing string, err error) {
	program = filepath.Join(dir, strings.ReplaceAll(c.tools.program, "NAME", c.dir))
	if old, err := stale(dir, program); err != nil || !old {
		return program, "", err
	}
	if _, err := exec.LookPath(c.tools.needs); err != nil {
		return "", "not built: needs " + c.tools.needs, nil
	}
	var command []string
	for _, arg := range c.tools.command {
		command = append(command, strings.ReplaceAll(arg, "NAME", c.dir))
	}
	name := strings.TrimPrefix(strings.Join(command[:2], " "), "../../scripts/")
	fmt.Fprintf(progress, "building %s: %s (the first time this takes minutes where libraries are compiled)\n", c.name, name)
	var said strings.Builder
	out := io.MultiWriter(&said, progress) // one writer for both: os/exec then never calls Write from two goroutines
	build := exec.CommandContext(p.ctx, command[0], command[1:]...)
	if !filepath.IsLocal(command[0]) {
		build.Path = filepath.Join(dir, command[0]) // a script in the checkout
	}
	build.Dir = dir
	build.Stdout, build.Stderr = out, out
	start := time.Now()
	if err := build.Run(); err != nil {
		if p.ctx.Err() != nil {
			return "", "", p.ctx.Err()
		}
		last := lastLines(said.String()+"\n"+err.Error(), maxSaid)
		fmt.Fprintf(p.Err, "building %s failed: %s\n%s\n", c.name, name, strings.Join(last, "\n"))
		return "", fmt.Sprintf("not built: %s failed: %s", name, last[max(0, len(last)-2)]), nil // without the exit code at the end
	}
	fmt.Fprintf(progress, "built %s in %.0f s\n", c.name, time.Since(start).Seconds())
	// A compiler that finds nothing to do does not change the file.
	if err := os.Chtimes(program, time.Now(), time.Now()); err != nil {
		return "", "", fmt.Errorf("building %s: %w", c.name, err)
	}
	return program, "", nil
}

// lastLines returns the last lines of a text that are not empty.
func lastLines(text string, n int) (lines []string) {
	for line := range strings.Lines(text) {
		if line = strings.TrimRight(line, " \r\n"); line != "" {
			lines = append(lines, line)
		}
	}
	return lines[max(0, len(lines)-n):]
}
