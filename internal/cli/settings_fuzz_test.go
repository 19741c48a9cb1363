package cli_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidewire/tidewire/internal/cli"
)

// FuzzConfig: any file of settings is either refused as bad usage, with a reason, or printed by `tidewire config` as a file that means the same.
func FuzzConfig(f *testing.F) {
	for _, text := range []string{
		"", "port = 8081", "max-memory = \"2GiB\"\nstored-rooms = [\"lobby\", \"support-*\"]", "port = -1", "rate-limit = 1e400", "x = 1", "rule = [\"user: read stream:a\"]",
		"[server]\nport = 1", "port = \"8080\"", "stored-rooms = [[\"a\"]]", "database-url = \"postgres://u:p@h/x\"", "rule = [\"*: query events:a#t:{claim.x}\"]\nauth-leeway = \"1m\"",
		"max-message = 9223372036854775808", "shutdown-timeout = 30", "migrate = false", "allow-origin = \"a,b\"", "port = 0x10", "\xff", "a.b = 1", "host = \"\\u0000\"", "open = true", "rule = [\"\"]", "host = \"\"",
	} {
		f.Add([]byte(text))
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, text []byte) {
		read := func(text []byte) (code int, out, errOut string) {
			file := filepath.Join(dir, "tidewire.toml") // a fuzz target runs one input at a time
			if err := os.WriteFile(file, text, 0o600); err != nil {
				t.Fatal(err)
			}
			var stdout, stderr bytes.Buffer
			code = cli.Run(t.Context(), cli.Env{
				Args: []string{"config", "--config", file}, Getenv: func(string) string { return "" }, In: strings.NewReader(""), Out: &stdout, Err: &stderr,
			})
			return code, stdout.String(), stderr.String()
		}
		code, out, errOut := read(text)
		switch {
		case code == cli.ExitUsage && errOut != "":
			return
		case code != cli.ExitOK:
			t.Fatalf("%q: exit code %d: %s", text, code, errOut)
		}
		if strings.Contains(string(text), "-url") {
			return // passwords are not printed
		}
		code, again, errOut := read([]byte(out))
		if code != cli.ExitOK {
			t.Fatalf("%q is printed as a file that is refused with %d: %s\n%s", text, code, errOut, out)
		}
		if settingsOf(again) != settingsOf(out) {
			t.Fatalf("%q is printed as\n%s\nand that as\n%s", text, out, again)
		}
	})
}

// settingsOf is the output of `tidewire config` without the sources of the settings.
func settingsOf(out string) string {
	var all strings.Builder
	for line := range strings.Lines(out) {
		if i := strings.LastIndex(line, " # "); i >= 0 && !strings.HasPrefix(line, "#") {
			line = strings.TrimRight(line[:i], " ") + "\n"
		}
		all.WriteString(line)
	}
	return all.String()
}
