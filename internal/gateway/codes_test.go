package gateway

import (
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// codeRow matches a row of the table of errors: codes, and their HTTP statuses.
var codeRow = regexp.MustCompile("(?m)^\\| ((?:`[a-z_]+`(?:, )?)+) \\| ([0-9, –]+) \\|")

// TestCodes_Documented: docs/reference/protocol.md has each code once, with its status, and no other.
func TestCodes_Documented(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/reference/protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := make(map[code]string)
	for _, row := range codeRow.FindAllStringSubmatch(string(text), -1) {
		codes, statuses := strings.Split(row[1], ", "), strings.Split(row[2], ", ")
		for i, name := range codes {
			name := code(strings.Trim(name, "`"))
			if _, twice := documented[name]; twice {
				t.Errorf("%s is there twice", name)
			}
			documented[name] = statuses[min(i, len(statuses)-1)]
		}
	}
	for name := range publicErrors {
		want := http.StatusBadRequest
		if status, ok := statuses[name]; ok {
			want = status
		}
		switch got, ok := documented[name]; {
		case !ok:
			t.Errorf("%s is missing", name)
		case got != "–" && got != strconv.Itoa(want):
			t.Errorf("%s has the status %s, want %d", name, got, want)
		}
		delete(documented, name)
	}
	for name := range documented {
		t.Errorf("%s is no code of the server", name)
	}
}
