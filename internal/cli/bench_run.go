package cli

import (
	"fmt"
	"os"
	"slices"

	"github.com/pelletier/go-toml/v2"
)

// benchRunCmd runs a benchmark from a file.
type benchRunCmd struct {
	File  string   `arg:"" help:"A .rerun.toml file. Every benchmark writes one beside its result; you can also write your own."`
	Extra []string `arg:"" optional:"" passthrough:"" help:"More flags for the benchmark, after --. They override those of the file."`
}

// Run is called by kong.
func (c *benchRunCmd) Run(p *process) error {
	text, err := os.ReadFile(c.File)
	if err != nil {
		return exit(ExitUsage, "read parameters: %w", err)
	}
	var r rerun
	if err := toml.Unmarshal(text, &r); err != nil {
		return exit(ExitUsage, "read parameters %s: %w", c.File, err)
	}
	args, err := r.arguments()
	if err != nil {
		return exit(ExitUsage, "%s: %w", c.File, err)
	}
	env := p.Env
	env.Args = append(args, slices.DeleteFunc(c.Extra, func(s string) bool { return s == "--" })...)
	fmt.Fprintln(p.Err, commandLine(env.Args))
	if code := Run(p.ctx, env); code != ExitOK {
		return &exitError{code: code}
	}
	return nil
}
