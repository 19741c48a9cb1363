package cli

import (
	"strings"
	"testing"

	"github.com/tidewire/tidewire/internal/doctor"
)

// TestPrintReport_Narrow: texts are wrapped at the width, commands are not.
func TestPrintReport_Narrow(t *testing.T) {
	t.Parallel()
	command := "ALTER SYSTEM SET synchronous_standby_names = '" + strings.Repeat("x", 80) + "';"
	r := doctor.Report{Server: "18.3", Findings: []doctor.Finding{
		{Check: "sync", Level: doctor.Warning, Text: strings.Repeat("word ", 30) + "end", Commands: []string{command}, Advice: strings.Repeat("advice ", 30) + "end"},
	}}
	for _, width := range []int{0, 20, 80} {
		var out strings.Builder
		if err := printReport(&out, r, width); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(out.String(), "    "+command+"\n") || !strings.Contains(out.String(), "0 errors, 1 warning, 0 notes, 0 ok\n") {
			t.Errorf("%d: %s", width, out.String())
		}
		long := 0
		for line := range strings.Lines(out.String()) {
			if len(line) > 81 && !strings.Contains(line, command) {
				long++
			}
		}
		if want := map[int]int{0: 2, 20: 2, 80: 0}[width]; long != want {
			t.Errorf("%d: %d long lines, want %d:\n%s", width, long, want, out.String())
		}
	}
}
