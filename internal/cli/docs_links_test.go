package cli

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

var (
	mdLink     = regexp.MustCompile(`\]\(([^)\s]+)(?: "[^"]*")?\)|(?:src|href)="([^"]+)"`)
	mdScheme   = regexp.MustCompile(`^[a-z]+:`)
	mdHeading  = regexp.MustCompile(`^#{1,6} +(.*?)[ #]*$`)
	mdTarget   = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	mdCodeSpan = regexp.MustCompile("`[^`\n]*`")
)

// unwritten are folders whose Markdown files are not written here: builds, results and other projects' packages.
var unwritten = []string{"node_modules", "bin", "results", "target", "zig-out"}

// markdown is a Markdown file of the repository.
type markdown struct {
	prose   []string // its lines, without fenced code
	anchors []string // of its headings, as GitHub makes them
}

// readMarkdown reads a file.
func readMarkdown(path string) (markdown, error) {
	text, err := os.ReadFile(path)
	var m markdown
	fenced := false
	for line := range strings.Lines(string(text)) {
		line = strings.TrimRight(line, "\r\n")
		if strings.HasPrefix(strings.TrimLeft(line, " >"), "```") {
			fenced = !fenced
			continue
		}
		if fenced {
			continue
		}
		m.prose = append(m.prose, line)
		if heading := mdHeading.FindStringSubmatch(line); heading != nil {
			m.anchors = append(m.anchors, anchorOf(heading[1], m.anchors))
		}
	}
	return m, err
}

// anchorOf returns the anchor of a heading. If an earlier heading has the same one, a number follows.
func anchorOf(heading string, earlier []string) string {
	heading = mdTarget.ReplaceAllString(heading, "$1")
	anchor := strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-', r == '_', unicode.IsLetter(r), unicode.IsDigit(r):
			return unicode.ToLower(r)
		}
		return -1
	}, heading)
	unique := anchor
	for n := 1; slices.Contains(earlier, unique); n++ {
		unique = fmt.Sprintf("%s-%d", anchor, n)
	}
	return unique
}

// links returns where the links of the file lead, except those to other hosts.
func (m markdown) links() (all []string) {
	for _, line := range m.prose {
		for _, found := range mdLink.FindAllStringSubmatch(mdCodeSpan.ReplaceAllString(line, ""), -1) {
			if link := found[1] + found[2]; !mdScheme.MatchString(link) {
				all = append(all, link)
			}
		}
	}
	return all
}

// allMarkdown returns the Markdown files of the repository, by path.
func allMarkdown(t *testing.T) map[string]markdown {
	t.Helper()
	all := make(map[string]markdown)
	err := filepath.WalkDir(checkout, func(path string, entry fs.DirEntry, err error) error {
		name := entry.Name()
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != checkout && (strings.HasPrefix(name, ".") || slices.Contains(unwritten, name)):
			return fs.SkipDir
		case entry.IsDir() || filepath.Ext(name) != ".md":
			return nil
		}
		all[path], err = readMarkdown(path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestDocuments_Links: every relative link in a Markdown file leads to a file that exists, and its anchor to a heading there.
func TestDocuments_Links(t *testing.T) {
	t.Parallel()
	all := allMarkdown(t)
	count := 0
	for path, m := range all {
		for _, link := range m.links() {
			count++
			name, anchor, _ := strings.Cut(link, "#")
			target := path
			if name != "" {
				target = filepath.Join(filepath.Dir(path), name)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: %s leads to a file that is not there", path, link)
			} else if to, ok := all[target]; ok && anchor != "" && !slices.Contains(to.anchors, anchor) {
				t.Errorf("%s: %s leads to a heading that is not there", path, link)
			}
		}
	}
	if count < 100 {
		t.Fatalf("only %d links are found", count)
	}
}
