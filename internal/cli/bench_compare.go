package cli

import (
	"strings"

	"github.com/tidewire/tidewire/internal/bench"
	"github.com/tidewire/tidewire/internal/bench/report"
)

// benchCompareCmd compares two results.
type benchCompareCmd struct {
	Before         string `arg:"" help:"Result file."`
	After          string `arg:"" help:"Another, of the same scenario with the same parameters on the same machine."`
	AllowDifferent bool   `help:"Compare the results even if they were measured in different ways."`
	All            bool   `help:"Show every metric. Default: the most important ones."`
}

// Run is called by kong.
func (c *benchCompareCmd) Run(p *process) error {
	before, err := bench.Read(c.Before)
	if err != nil {
		return exit(ExitUsage, "%w", err)
	}
	after, err := bench.Read(c.After)
	if err != nil {
		return exit(ExitUsage, "%w", err)
	}
	if all := report.Differences(before, after); len(all) > 0 && !c.AllowDifferent {
		return exit(ExitUsage, "the results were measured in different ways; --allow-different compares them anyway:\n  %s", strings.Join(all, "\n  "))
	}
	return report.ComparisonTable(p.Out, before, after, c.All)
}
