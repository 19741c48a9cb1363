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

// toolchain is how release builds of a language are made.
type toolchain struct {
	needs string // the program without which there is none
	// command is run in the contender's folder. NAME stands for that folder's
	// name.
	command []string
	program string // what it makes, below the folder
}

// Optimised as each language's users do, and without symbols. Programs lie apart
// from those of the tests.
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
	// The compiler comes from PyPI. Which of the release modes is the
	// contender's own choice.
	zigTools = toolchain{
		needs:   "python3",
		command: []string{"../../scripts/zig.sh", "build", "--release", "--prefix", "bin/release", "--prefix-exe-dir", "."},
		program: "bin/release/NAME",
	}
)

// maxSaid is how many lines of a compiler that fails are shown.
const maxSaid = 20

// build makes the contender's program, if it is not there or older than its
// sources, and returns it. If that cannot be done, missing says why; an error is
// about something else.
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
	out := io.MultiWriter(&said, progress) // one writer: the two streams never write at a time
	build := exec.CommandContext(p.ctx, command[0], command[1:]...)
	if !filepath.IsLocal(command[0]) {
		build.Path = filepath.Join(dir, command[0]) // a script of the checkout
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
		return "", fmt.Sprintf("not built: %s failed: %s", name, last[max(0, len(last)-2)]), nil // before the exit code
	}
	fmt.Fprintf(progress, "built %s in %.0f s\n", c.name, time.Since(start).Seconds())
	// A compiler that finds nothing to do leaves the file as it is.
	if err := os.Chtimes(program, time.Now(), time.Now()); err != nil {
		return "", "", fmt.Errorf("building %s: %w", c.name, err)
	}
	return program, "", nil
}

// lastLines returns the last lines of a text that have something in them.
func lastLines(text string, n int) (lines []string) {
	for line := range strings.Lines(text) {
		if line = strings.TrimRight(line, " \r\n"); line != "" {
			lines = append(lines, line)
		}
	}
	return lines[max(0, len(lines)-n):]
}
