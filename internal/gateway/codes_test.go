package gateway

import (
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// codeRow matches a row of the table of errors: codes, and their HTTP statuses.
var codeRow = regexp.MustCompile("(?m)^\\| ((?:`[a-z_]+`(?:, )?)+) \\| ([0-9, –]+) \\|")

// retryableText matches the paragraph that lists the codes after which a request can be sent again.
var retryableText = regexp.MustCompile("(?s)\\n`retryable` is true (.*?)\n\n")

// TestCodes_Retryable: the page lists the codes after which a request can be sent again, and these are errors of the server.
func TestCodes_Retryable(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/reference/protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	listed := strings.Split(retryableText.FindString(string(text)), "`")
	for name := range retryable {
		if publicErrors[name] == "" {
			t.Errorf("%s is no error", name)
		}
		if !slices.Contains(listed, string(name)) {
			t.Errorf("%s is not listed", name)
		}
	}
	for i := 3; i < len(listed); i += 2 { // the first is the field's own name
		if name := code(listed[i]); !retryable[name] && name != "retry_after_ms" {
			t.Errorf("%s is listed", name)
		}
	}
}

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
