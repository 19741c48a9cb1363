package orders_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestTheTutorialHasThisCode compares each block of Go in the tutorial with the program, line by line.
func TestTheTutorialHasThisCode(t *testing.T) {
	page, err := os.ReadFile("../../../../docs/tutorials/order-service-go.md")
	if err != nil {
		t.Fatal(err)
	}
	var program string
	for _, name := range []string{"orders.go", "../../inprocess/inprocess_test.go"} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		program += flush(string(text)) + "\n"
	}
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	if len(blocks) < 8 {
		t.Errorf("there are %d blocks", len(blocks))
	}
	for _, block := range blocks {
		if !strings.Contains(program, "\n"+flush(block[1])) {
			t.Errorf("this is in the tutorial, and not in the program:\n%s", block[1])
		}
	}
}

// flush returns a text without the indentation of its lines.
func flush(text string) string { return regexp.MustCompile(`(?m)^[ \t]+`).ReplaceAllString(text, "") }
