// Mutants measures what the tests catch. It puts single faults into a package, each in a
// copy that the compiler reads instead of the file, runs the tests of that package and then
// of those that import it, and prints whether a test failed. It begins with the tests without
// a fault: one that fails then catches nothing.
//
// The faults are made from the code as it is (see faults), so that nothing has to be
// maintained when code moves, and chosen by a seed: the same seed chooses the same faults
// as long as their functions do not change.
//
//	go run ./internal/mutants -pkg ./stream -seed 7
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	pkg := flag.String("pkg", "", "package to put faults into, such as ./stream")
	seed := flag.Uint64("seed", 1, "chooses the faults")
	count := flag.Int("n", 10, "number of faults")
	only := flag.String("only", "", "run only the fault with this id")
	list := flag.Bool("list", false, "print the faults, run nothing")
	alone := flag.Bool("alone", false, "run the tests of the package only, not of those that import it")
	timeout := flag.Duration("timeout", 0, "longest run of one package's tests; one that takes longer has caught the fault (default 30s and five times a run without a fault)")
	flag.Parse()
	// The tests that run get the signal of a terminal too; what is temporary is removed.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	p, err := load(*pkg)
	if err == nil && *alone {
		p.importers = nil
	}
	if err == nil {
		err = run(ctx, p, *seed, *count, *only, *list, *timeout, flag.Args())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, p *listed, seed uint64, count int, only string, list bool, timeout time.Duration, testFlags []string) error {
	harmless, err := readHarmless(filepath.Join(filepath.Dir(p.Module.GoMod), "internal/mutants/harmless.tsv"))
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "mutants-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	if !list {
		fmt.Fprintf(os.Stderr, "mutants: testing %s without a fault, and %d packages that import it (-alone leaves them out)\n", p.ImportPath, len(p.importers))
		start := time.Now()
		if by := (mutant{pkg: p, timeout: cmp.Or(timeout, 10*time.Minute), flags: testFlags}).test(); by != "" && ctx.Err() == nil {
			return fmt.Errorf("without a fault: %s: mend that test first", by)
		}
		timeout = cmp.Or(timeout, 30*time.Second+5*time.Since(start))
	}
	tried, caught := 0, 0
	for _, f := range choose(p, seed) {
		if tried == count || ctx.Err() != nil {
			break
		}
		if only != "" && f.id() != only {
			continue
		}
		if reason := harmless[f.id()]; reason != "" {
			fmt.Printf("%s\tharmless\t%s\t%s\n", f.id(), f, reason)
			continue
		}
		m := mutant{fault: f, pkg: p, dir: work, timeout: timeout, flags: testFlags}
		if err := m.compile(); err != nil {
			continue // the compiler catches it: another takes its place
		}
		tried++
		if list {
			fmt.Printf("%s\tlisted\t%s\n", f.id(), f)
			continue
		}
		fmt.Fprintf(os.Stderr, "mutants: testing with fault %d\n", tried)
		start := time.Now()
		by := m.test()
		if ctx.Err() != nil {
			tried-- // the signal has interrupted its tests
			break
		}
		if by != "" {
			caught++
		}
		fmt.Printf("%s\t%s\t%s\t%.0fs\n", f.id(), cmp.Or(by, "NOT CAUGHT"), f, time.Since(start).Seconds())
	}
	if ctx.Err() != nil {
		return fmt.Errorf("interrupted after %d faults, of which %d were caught", tried, caught)
	}
	if !list {
		fmt.Printf("%s: %d of %d caught, seed %d\n", p.ImportPath, caught, tried, seed)
	}
	return nil
}

// listed is what go list reports of a package.
type listed struct {
	ImportPath, Dir string
	GoFiles         []string
	Module          struct{ GoMod string }

	importers []string // packages whose tests reach this one, and which have tests
}

func load(pkg string) (*listed, error) {
	if !strings.HasPrefix(pkg, ".") || strings.Contains(pkg, "...") {
		return nil, fmt.Errorf("name one package: -pkg ./stream, or make mutants PKG=./stream")
	}
	list := exec.Command("go", "list", "-json", pkg)
	list.Stderr = os.Stderr
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("go list %s: %w", pkg, err)
	}
	p := &listed{}
	if err := json.Unmarshal(out, p); err != nil {
		return nil, err
	}
	// The binary of a package's tests is listed as "path.test", with all that it links.
	out, err = exec.Command("go", "list", "-test", "-f", `{{.ImportPath}} {{join .Deps " "}}`, "./...").Output()
	if err != nil {
		return nil, fmt.Errorf("go list -test: %w", err)
	}
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		tested, isTest := strings.CutSuffix(fields[0], ".test")
		if isTest && tested != p.ImportPath && slices.Contains(fields[1:], p.ImportPath) {
			p.importers = append(p.importers, tested)
		}
	}
	return p, nil
}

// mutant is a package with one fault; without a folder, it has none.
type mutant struct {
	fault   fault
	pkg     *listed
	dir     string // of the files that replace
	timeout time.Duration
	flags   []string // for go test
}

// compile writes the file with the fault, and reports whether the compiler takes it.
func (m mutant) compile() error {
	text, err := os.ReadFile(m.fault.file)
	if err != nil {
		return err
	}
	faulty := string(text[:m.fault.from]) + m.fault.text + string(text[m.fault.to:])
	copied := filepath.Join(m.dir, "faulty.go")
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{m.fault.file: copied}})
	if err != nil {
		return err
	}
	for path, text := range map[string]string{copied: faulty, m.overlay(): string(overlay)} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			return err
		}
	}
	return m.command("build", m.pkg.ImportPath).Run()
}

func (m mutant) overlay() string { return filepath.Join(m.dir, "overlay.json") }

// command is a go command; the programs that tests build have the fault too.
func (m mutant) command(args ...string) *exec.Cmd {
	cmd := exec.Command("go", args...)
	if m.dir == "" {
		return cmd
	}
	cmd.Env = append(os.Environ(), "GOFLAGS="+strings.TrimSpace(os.Getenv("GOFLAGS")+" -overlay="+m.overlay()))
	return cmd
}

// test returns the first package whose tests fail, and its first failed test. It begins with the package itself.
func (m mutant) test() string {
	for _, packages := range [][]string{{m.pkg.ImportPath}, m.pkg.importers} {
		if len(packages) == 0 {
			continue
		}
		args := append([]string{"test", "-json", "-count=1", "-vet=off", "-failfast", "-timeout", m.timeout.String()}, m.flags...)
		out, err := m.command(append(args, packages...)...).Output()
		if err != nil {
			return firstFailure(out)
		}
	}
	return ""
}

// firstFailure finds the first failure in the output of go test -json.
func firstFailure(out []byte) string {
	pkg := ""
	for line := range strings.Lines(string(out)) {
		var event struct{ Action, Package, Test string }
		if json.Unmarshal([]byte(line), &event) != nil || event.Action != "fail" {
			continue
		}
		pkg = cmp.Or(pkg, filepath.Base(event.Package))
		if event.Test != "" {
			return "caught by " + filepath.Base(event.Package) + "." + event.Test
		}
	}
	return "caught by " + cmp.Or(pkg, "the build of a test")
}

// readHarmless reads the faults that change nothing a user could see: an id and the reason in each line.
func readHarmless(path string) (map[string]string, error) {
	text, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		return nil, nil
	}
	marked := make(map[string]string)
	for line := range strings.Lines(string(text)) {
		if id, reason, ok := strings.Cut(strings.TrimSpace(line), "\t"); ok && !strings.HasPrefix(id, "#") {
			marked[id] = reason
		}
	}
	return marked, err
}
