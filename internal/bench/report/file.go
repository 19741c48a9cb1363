package report

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tidewire/tidewire/internal/bench"
)

// File is a result, the name of its file, and the raw data beside it. A report
// is a pure function of Files.
type File struct {
	Name string // without directories
	*bench.Result
	Beside []string // names of the files with raw data

	alias string // the name in this report
}

// Open reads a result file and the raw data beside it.
func Open(path string) (File, error) {
	result, err := bench.Read(path)
	if err != nil {
		return File{}, err
	}
	f := File{Name: filepath.Base(path), Result: result}
	for _, ending := range []string{bench.EndingLatencies, bench.EndingSeries, bench.EndingRerun} {
		switch _, err := os.Stat(bench.Beside(path, ending)); {
		case err == nil:
			f.Beside = append(f.Beside, bench.Beside(f.Name, ending))
		case !errors.Is(err, fs.ErrNotExist):
			return File{}, fmt.Errorf("look beside %s: %w", path, err)
		}
	}
	return f, nil
}

// short returns the name of the file in the report, without the ending.
func (f File) short() string { return strings.Replace(f.alias, ".json", "", 1) }

// distinct gives files of the same name different names in the report.
func distinct(files []File) []File {
	files = slices.Clone(files)
	seen := make(map[string]int)
	for i, f := range files {
		files[i].alias = f.Name
		if seen[f.Name]++; seen[f.Name] > 1 {
			files[i].alias = fmt.Sprintf("%s (%d)", f.Name, seen[f.Name])
		}
	}
	return files
}

// labelOf names a row, with its file if several files have the same scenario.
func labelOf(files []File, f File, row string) string {
	same := 0
	for _, other := range files {
		if other.Scenario == f.Scenario {
			same++
		}
	}
	if same > 1 {
		return f.short() + ": " + row
	}
	return row
}
