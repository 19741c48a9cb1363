package cli_test

import (
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/tidewire/tidewire/internal/cli"
	"github.com/tidewire/tidewire/internal/pgtest"
)

// shownCommand is a command of README.md, and what it prints.
type shownCommand struct{ line, output string }

// shownCommands returns the commands of README.md's consoles, in order.
func shownCommands(t *testing.T) (all []shownCommand) {
	t.Helper()
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	inside := false
	for line := range strings.Lines(string(text)) {
		line = strings.TrimRight(line, "\n")
		switch {
		case strings.HasPrefix(line, "```"):
			inside = line == "```console"
		case !inside:
		case strings.HasPrefix(line, "$ "):
			all = append(all, shownCommand{line: line[2:]})
		case len(all) > 0 && strings.HasSuffix(all[len(all)-1].line, `\`):
			last := &all[len(all)-1]
			last.line = strings.TrimSuffix(last.line, `\`) + strings.TrimSpace(line)
		case len(all) > 0:
			all[len(all)-1].output += line + "\n"
		}
	}
	if len(all) < 6 {
		t.Fatalf("only %d commands are found", len(all))
	}
	return all
}

// shapeOf returns a regular expression for the shown output, where … stands for anything.
func shapeOf(shown string) *regexp.Regexp {
	return regexp.MustCompile("^" + strings.ReplaceAll(regexp.QuoteMeta(strings.TrimSpace(shown)), "…", ".*") + "$")
}

var word = regexp.MustCompile(`'[^']*'|\S+`)

// wordsOf splits a command line as a shell does, as far as README.md needs it.
func wordsOf(line string) (words []string) {
	for _, w := range word.FindAllString(line, -1) {
		words = append(words, strings.Trim(w, "'"))
	}
	return words
}

// TestReadme_Commands: the commands print what README.md shows.
func TestReadme_Commands(t *testing.T) {
	t.Parallel()
	db := pgtest.Open(t)
	p := serve(t, "--database-url", db.URL)
	for _, c := range shownCommands(t) {
		words := wordsOf(c.line)
		var got string
		switch words[0] {
		case "make": // not needed: serve is what it starts
			continue
		case "curl":
			got = curl(t, p.Addr, words[1:])
		case "./bin/tidewire":
			code, out, errOut := run(t, onlyEnv("DATABASE_URL", db.URL), words[1:]...)
			if code != cli.ExitOK {
				t.Errorf("%s: exit code %d, %s", c.line, code, errOut)
			}
			got = out
		default:
			t.Fatalf("%s: nobody knows how to run this", c.line)
		}
		if !shapeOf(c.output).MatchString(strings.TrimSpace(got)) {
			t.Errorf("%s\nprints\n%s\nand README.md shows\n%s", c.line, got, c.output)
		}
	}
}

// curl supports -X, -H, -d and an address.
func curl(t *testing.T, addr string, args []string) string {
	t.Helper()
	method, body, header, url := "GET", "", http.Header{}, ""
	for i := 0; i < len(args); i++ {
		switch args[i] {
		case "-X":
			i++
			method = args[i]
		case "-d":
			i++
			body = args[i]
		case "-H":
			i++
			name, value, _ := strings.Cut(args[i], ": ")
			header.Set(name, value)
		default:
			url = "http://" + strings.Replace(args[i], "localhost:8080", addr, 1)
		}
	}
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header = header
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
