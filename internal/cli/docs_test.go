package cli

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

// checkout is the path of this repository from this package.
const checkout = "../.."

// documents returns the texts of README.md and docs/, by path.
func documents(t *testing.T) map[string]string {
	t.Helper()
	paths, err := filepath.Glob(checkout + "/docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	deeper, err := filepath.Glob(checkout + "/docs/*/*.md")
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]string)
	for _, path := range append(append(paths, deeper...), checkout+"/README.md") {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		all[path] = string(text)
	}
	if len(all) < 10 {
		t.Fatalf("only %d documents are found", len(all))
	}
	return all
}

var (
	docFile    = regexp.MustCompile("`((?:bench|cmd|contenders|docs|eventstore|gateway|ingest|internal|migrate|queue|room|scripts|stream|tools|websocket)/[\\w./-]+)`")
	docFlag    = regexp.MustCompile("(?:^|[\\s`'(\"])--([a-z][a-z0-9_-]+)")
	docMake    = regexp.MustCompile("`make ([a-z][a-z0-9-]*)")
	docCommand = regexp.MustCompile("`tidewire ([a-z][a-z-]*)(?: ([a-z][a-z|-]*))?")
	docTest    = regexp.MustCompile("`((?:Test|Fuzz|Benchmark)[A-Z]\\w*)`")
	testFunc   = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)[A-Z]\w*)\(`)
	docTable   = regexp.MustCompile("`tidewire\\.([a-z][a-z0-9_]*)")
)

// TestDocuments_Files: files that documents name exist. docs_links_test.go has the links.
func TestDocuments_Files(t *testing.T) {
	t.Parallel()
	exists := func(path string) bool {
		_, err := os.Stat(path)
		return err == nil
	}
	for path, text := range documents(t) {
		for _, m := range docFile.FindAllStringSubmatch(text, -1) {
			if !exists(filepath.Join(checkout, m[1])) {
				t.Errorf("%s names %s, which is not there", path, m[1])
			}
		}
	}
}

// TestDocuments_Tests: tests that documents name exist, so a promise is not said to be tested after its test is gone.
func TestDocuments_Tests(t *testing.T) {
	t.Parallel()
	known := make(map[string]bool)
	err := filepath.WalkDir(checkout, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range testFunc.FindAllSubmatch(text, -1) {
			known[string(m[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for path, text := range documents(t) {
		for _, m := range docTest.FindAllStringSubmatch(text, -1) {
			if !known[m[1]] {
				t.Errorf("%s names the test %s, which is not there", path, m[1])
			}
		}
	}
}

// foreignFlags belong to other programs.
var foreignFlags = []string{"release"} // of cargo

// TestDocuments_Flags: flags that documents name exist.
func TestDocuments_Flags(t *testing.T) {
	t.Parallel()
	known := commandFlags(t)
	for path, text := range documents(t) {
		for _, m := range docFlag.FindAllStringSubmatch(text, -1) {
			if !known[m[1]] && !slices.Contains(foreignFlags, m[1]) {
				t.Errorf("%s names --%s, which no command has", path, m[1])
			}
		}
	}
}

// commandModel is the whole command line.
func commandModel(t *testing.T) *kong.Application {
	t.Helper()
	parser, err := kong.New(&commands{}, kong.Vars{"data_dir": "", "data_dir_help": "", "version": ""}, valueMappers())
	if err != nil {
		t.Fatal(err)
	}
	return parser.Model
}

// commandFlags are the flags of all commands, with their other names.
func commandFlags(t *testing.T) map[string]bool {
	t.Helper()
	all := map[string]bool{"help": true}
	err := kong.Visit(commandModel(t), func(node kong.Visitable, next kong.Next) error {
		if f, ok := node.(*kong.Flag); ok {
			all[f.Name] = true
			for _, alias := range f.Aliases {
				all[alias] = true
			}
			if f.Tag.Negatable != "" {
				all["no-"+f.Name] = true
			}
		}
		return next(nil)
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// notCommands follow the word tidewire in documents, but are not commands.
var notCommands = []string{"writer"} // an application_name

// TestDocuments_Commands: commands and make targets that documents name exist.
func TestDocuments_Commands(t *testing.T) {
	t.Parallel()
	makefile, err := os.ReadFile(checkout + "/Makefile")
	if err != nil {
		t.Fatal(err)
	}
	top := commandModel(t).Node
	for path, text := range documents(t) {
		for _, m := range docMake.FindAllStringSubmatch(text, -1) {
			if !strings.Contains(string(makefile), "\n"+m[1]+":") {
				t.Errorf("%s names make %s, which is not there", path, m[1])
			}
		}
		for _, m := range docCommand.FindAllStringSubmatch(text, -1) {
			command := childOf(top, m[1])
			if slices.Contains(notCommands, m[1]) {
				continue
			}
			if command == nil {
				t.Errorf("%s names tidewire %s, which is no command", path, m[1])
				continue
			}
			for name := range strings.SplitSeq(m[2], "|") {
				if name != "" && len(command.Children) > 0 && childOf(command, name) == nil {
					t.Errorf("%s names tidewire %s %s, which is no command", path, m[1], name)
				}
			}
		}
	}
}

// childOf returns a subcommand, or nil.
func childOf(node *kong.Node, name string) *kong.Node {
	for _, child := range node.Children {
		if child.Name == name {
			return child
		}
	}
	return nil
}

// TestDocuments_Names: names in the schema tidewire that documents mention exist in the code.
func TestDocuments_Names(t *testing.T) {
	t.Parallel()
	var code strings.Builder
	err := filepath.WalkDir(checkout, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := entry.Name()
		switch {
		case entry.IsDir() && strings.HasPrefix(name, ".") && path != checkout:
			return fs.SkipDir
		case entry.IsDir() || strings.HasSuffix(name, "_test.go") || filepath.Ext(name) != ".go" && filepath.Ext(name) != ".sql":
			return nil
		}
		text, err := os.ReadFile(path)
		code.Write(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for path, text := range documents(t) {
		for _, m := range docTable.FindAllStringSubmatch(text, -1) {
			if !strings.Contains(code.String(), "tidewire."+m[1]) {
				t.Errorf("%s names tidewire.%s, which is not in the code", path, m[1])
			}
		}
	}
}
