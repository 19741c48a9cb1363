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

// defaultReport is where the page goes that is given no name.
const defaultReport = "report.html"

// benchReportCmd turns result files into something to read.
type benchReportCmd struct {
	Files    []string `arg:"" name:"file" help:"Result files, in the order in which they are to be shown."`
	Out      string   `short:"o" placeholder:"FILE" help:"Where to write. Default: report.html; of --markdown and --csv, standard output."`
	Markdown bool     `xor:"format" help:"Markdown in place of a page."`
	CSV      bool     `name:"csv" xor:"format" help:"One line for each metric of each row."`
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

// writeFile writes the report whole or not at all: a result may be named by mistake
// where a report should be.
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

// check keeps a result from being overwritten by its own report.
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
