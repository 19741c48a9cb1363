package cli

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// benchAllCmd runs every scenario.
type benchAllCmd struct {
	Quick bool     `help:"Run the small version of each benchmark once. It takes less than three minutes on two cores."`
	Dir   string   `placeholder:"DIR" help:"Directory for the results and the report. Default: a new folder under results/."`
	Only  []string `placeholder:"NAME" help:"Run only these benchmarks."`
	Quiet bool     `help:"Do not show progress."`
}

// Run is called by kong. If one scenario fails, the others still run.
func (c *benchAllCmd) Run(p *process) error {
	dir := c.Dir
	if dir == "" {
		dir = filepath.Join("results", "all-"+time.Now().UTC().Format("20060102T150405"))
	}
	if err := c.check(); err != nil {
		return err
	}
	begun, worst := time.Now(), ExitOK
	var summary strings.Builder
	for _, s := range scenarios {
		if !c.wants(s.name) {
			continue
		}
		at := time.Now()
		args := append([]string{"bench", s.name}, s.args...)
		args = append(args, "--out", filepath.Join(dir, s.name+".json"))
		if c.Quick {
			args = append(args, "--quick")
		}
		if c.Quiet {
			args = append(args, "--quiet")
		}
		fmt.Fprintf(p.Out, "\n%s\n", commandLine(args))
		env := p.Env
		env.Args = args
		code := Run(p.ctx, env)
		if p.ctx.Err() != nil {
			return p.ctx.Err()
		}
		if code != ExitOK && worst == ExitOK {
			worst = code
		}
		fmt.Fprintf(&summary, "%-8s %-10s %s\n", s.name, outcomeOf(code), time.Since(at).Round(100*time.Millisecond))
	}
	fmt.Fprintf(p.Out, "\n%s%s in all\n", summary.String(), time.Since(begun).Round(time.Second))
	if err := reportAll(p, dir); err != nil {
		return err
	}
	if worst != ExitOK {
		return &exitError{code: worst}
	}
	return nil
}

func (c *benchAllCmd) check() error {
	for _, name := range c.Only {
		if !slices.ContainsFunc(scenarios, func(s scenarioInfo) bool { return s.name == name }) {
			return exit(ExitUsage, "--only: there is no scenario %q: see tidewire bench list", name)
		}
	}
	return nil
}

func (c *benchAllCmd) wants(name string) bool {
	return len(c.Only) == 0 || slices.Contains(c.Only, name)
}

func outcomeOf(code int) string {
	switch code {
	case ExitOK:
		return "valid"
	case ExitInvalid:
		return "INVALID"
	}
	return fmt.Sprintf("failed (%d)", code)
}

// reportAll makes one page of all results in a folder.
func reportAll(p *process, dir string) error {
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil || len(files) == 0 {
		return err
	}
	env := p.Env
	env.Args = append(append([]string{"bench", "report"}, files...), "-o", filepath.Join(dir, "report.html"))
	if code := Run(p.ctx, env); code != ExitOK {
		return &exitError{code: code}
	}
	return nil
}
