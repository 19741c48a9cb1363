package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/tidewire/tidewire/internal/bench/report"
)

// defaultReport is the file of the page if the user names none.
const defaultReport = "report.html"

// benchReportCmd turns result files into a report for people.
type benchReportCmd struct {
	Files    []string `arg:"" name:"file" help:"Result files, in the order in which the report shows them."`
	Out      string   `short:"o" placeholder:"FILE" help:"File to write. Default: report.html; with --markdown or --csv, standard output."`
	Markdown bool     `xor:"format" help:"Write Markdown instead of an HTML page."`
	CSV      bool     `name:"csv" xor:"format" help:"Write CSV: one line for each metric of each row."`
}

// Run is called by kong.
func (c *benchReportCmd) Run(p *process) error {
	files := make([]report.File, len(c.Files))
	for i, path := range c.Files {
		var err error
		if files[i], err = report.Open(path); err != nil {
			return exit(ExitUsage, "%w: give the JSON file that tidewire bench wrote, whose name it printed at the end", err)
		}
	}
	write, path := report.HTML, c.Out
	switch {
	case c.Markdown:
		write = report.Markdown
	case c.CSV:
		write = report.CSV
	case path == "":
		path = defaultReport
	}
	if path == "" {
		return write(p.Out, files)
	}
	return c.writeFile(p, path, files, write)
}

// writeFile writes the report completely or not at all, so that a result file that
// was named by mistake is not damaged.
func (c *benchReportCmd) writeFile(p *process, path string, files []report.File, write func(io.Writer, []report.File) error) error {
	if err := c.check(path); err != nil {
		return err
	}
	var page strings.Builder
	if err := write(&page, files); err != nil {
		return err
	}
	if err := os.WriteFile(path, []byte(page.String()), 0o644); err != nil {
		return exit(ExitUsage, "write the report: %w: choose another place with -o", err)
	}
	_, err := fmt.Fprintf(p.Out, "%s (%d KiB)\n", filepath.ToSlash(path), (page.Len()+1023)/1024)
	return err
}

// check prevents that a report overwrites a result.
func (c *benchReportCmd) check(path string) error {
	out, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return exit(ExitUsage, "write the report: %w: choose another place with -o", err)
	}
	for _, in := range c.Files {
		if info, err := os.Stat(in); err == nil && os.SameFile(info, out) {
			return exit(ExitUsage, "-o %s is a result file: choose another name for the report", path)
		}
	}
	return nil
}
