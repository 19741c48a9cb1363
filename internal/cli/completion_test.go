package cli_test

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/tidewire/tidewire/internal/cli"
)

// TestCompletion asks as a shell does, and checks the suggestions.
func TestCompletion(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{"tidewire bench ": "compare", "tidewire bench queue --thr": "--threshold", "tidewire str": "stream"} {
		ask := exec.CommandContext(t.Context(), tidewire(t))
		ask.Env = append(os.Environ(), "COMP_LINE="+line, fmt.Sprintf("COMP_POINT=%d", len(line)))
		out, err := ask.Output()
		if err != nil || !slices.Contains(strings.Fields(string(out)), want) {
			t.Errorf("%q: %q, %v; want %q among it", line, out, err, want)
		}
	}
	if code, out, _ := run(t, nil, "completion", "-c", "bash"); code != cli.ExitOK || !strings.Contains(out, "complete ") {
		t.Errorf("exit code %d: %q", code, out)
	}
}
