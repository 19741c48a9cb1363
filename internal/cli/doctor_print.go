package cli

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/charmbracelet/x/term"

	"github.com/tidewire/tidewire/internal/doctor"
)

// widthOf returns the number of characters in a line of the terminal. It is 0 if the output is no terminal: then
// each finding is one line.
func widthOf(out io.Writer) int {
	file, ok := out.(*os.File)
	if !ok || !term.IsTerminal(file.Fd()) {
		return 0
	}
	width, _, err := term.GetSize(file.Fd())
	if err != nil {
		return 0
	}
	return width
}

// Columns: the level, the check, and the text.
const (
	levelColumn = 9
	checkColumn = 14
	textColumn  = levelColumn + checkColumn
	// narrowest is the smallest width of the text column at which lines are broken.
	narrowest = 30
)

// printReport writes a line for each finding, with the advice indented below it. On a terminal it wraps texts at the
// terminal's width, but never commands, so that they can be copied.
func printReport(out io.Writer, r doctor.Report, width int) error {
	w := bufio.NewWriter(out)
	if r.Server != "" {
		fmt.Fprintf(w, "PostgreSQL %s, database %s, role %s\n\n", r.Server, r.Database, r.Role)
	}
	indent := strings.Repeat(" ", textColumn)
	counts := make(map[doctor.Level]int)
	for _, f := range r.Findings {
		counts[f.Level]++
		fmt.Fprintf(w, "%-*s%-*s%s\n", levelColumn, f.Level, checkColumn, f.Check, wrapped(f.Text, indent, width))
		for _, command := range f.Commands {
			fmt.Fprintf(w, "    %s\n", command)
		}
		if f.Advice != "" {
			fmt.Fprintf(w, "    %s\n", wrapped(f.Advice, "    ", width))
		}
	}
	fmt.Fprintf(w, "\n%s, %s, %s, %d ok\n", several(counts[doctor.Error], "error"), several(counts[doctor.Warning], "warning"), several(counts[doctor.Note], "note"), counts[doctor.OK])
	return w.Flush()
}

// wrapped wraps a text that begins at the column of the indent.
func wrapped(text, indent string, width int) string {
	room := width - len(indent)
	if room < narrowest {
		return text
	}
	var b strings.Builder
	column := 0
	for i, word := range strings.Fields(text) {
		n := utf8.RuneCountInString(word)
		switch {
		case i == 0:
		case column+1+n > room:
			b.WriteString("\n" + indent)
			column = 0
		default:
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column += n
	}
	return b.String()
}

func several(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %ss", n, one)
}
