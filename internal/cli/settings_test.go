package cli_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidewire/tidewire/internal/cli"
	"github.com/tidewire/tidewire/internal/pgtest"
)

// configFile writes a file of settings.
func configFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tidewire.toml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// onlyEnv is an environment with one variable.
func onlyEnv(name, value string) func(string) string {
	return func(asked string) string {
		if asked == name {
			return value
		}
		return ""
	}
}

// setting returns the line of a setting in the output of `tidewire config`.
func setting(out, name string) string {
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, name+" = ") {
			return strings.Join(strings.Fields(line), " ")
		}
	}
	return ""
}

// TestConfig_Order: a flag overrides the environment, the environment the file, and the file the
// default.
func TestConfig_Order(t *testing.T) {
	t.Parallel()
	file := configFile(t, `
port = 1
rate-limit = 20
max-memory = "2GiB"
stored-rooms = ["lobby", "support-*"]
migrate = false
database-url = "postgres://u:geheim@localhost/x"
`)
	env := map[string]string{"TIDEWIRE_CONFIG": file, "TIDEWIRE_PORT": "2", "TIDEWIRE_RATE_LIMIT": "30", "TIDEWIRE_ALLOW_ORIGIN": "https://a.example,https://b.example"}
	code, out, errOut := run(t, func(name string) string { return env[name] }, "config", "--port", "3")
	if code != cli.ExitOK {
		t.Fatalf("%d %s", code, errOut)
	}
	for name, want := range map[string]string{
		"port": "3 # flag", "rate-limit": "30.0 # environment", "migrate": "false # " + file, "rate-burst": "10.0 # default",
		"max-memory": "'2147483648' # " + file, "stored-rooms": "['lobby', 'support-*'] # " + file,
		"allow-origin": "['https://a.example', 'https://b.example'] # environment", "database-url": "'postgres://u:xxxxx@localhost/x' # " + file,
	} {
		if got := setting(out, name); got != name+" = "+want {
			t.Errorf("%q, want %s", got, want)
		}
	}
	again := configFile(t, out)
	if code, second, errOut := run(t, nil, "config", "--config", again); code != cli.ExitOK || setting(second, "stored-rooms") != "stored-rooms = ['lobby', 'support-*'] # "+again {
		t.Errorf("what is printed as a file: %d %s %s", code, second, errOut)
	}
}

// TestConfig_Errors name their source.
func TestConfig_Errors(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"max_memory = 1":     "unknown key max_memory: keys are the flags",
		"[server]\nport = 1": "unknown key server",
		"port = 'abc'":       "tidewire.toml: expected a valid 64 bit int but got \"abc\"",
		"port = ":            "line 1, column 7",
		"max-memory = '1'":   "tidewire.toml: invalid amount of memory",
		"rate-limit = 0":     "--rate-limit: want more than 0",
	} {
		for _, command := range []string{"config", "serve"} {
			code, _, errOut := run(t, nil, command, "--config", configFile(t, text))
			if code != cli.ExitUsage || !strings.Contains(errOut, want) {
				t.Errorf("%s, %q: %d %s, want %q", command, text, code, errOut, want)
			}
		}
	}
	if code, _, errOut := run(t, onlyEnv("TIDEWIRE_PORT", "x"), "config"); code != cli.ExitUsage || !strings.Contains(errOut, "TIDEWIRE_PORT: expected") {
		t.Errorf("environment: %d %s", code, errOut)
	}
	if code, _, errOut := run(t, nil, "serve", "--config", "nowhere.toml"); code != cli.ExitUsage || !strings.Contains(errOut, "--config: open nowhere.toml") {
		t.Errorf("no file: %d %s", code, errOut)
	}
	lanes := configFile(t, "[server]\nport = 4711\n")
	if code, out, errOut := run(t, nil, "config", "--only", "lanes", "--config", lanes); code != cli.ExitOK || setting(out, "only") != "only = 'lanes' # flag" {
		t.Errorf("the lanes benchmark's file: %d %s %s", code, out, errOut)
	}
}

// TestConfig_ShowsNoPassword of any address.
func TestConfig_ShowsNoPassword(t *testing.T) {
	t.Parallel()
	for _, address := range []string{
		"postgres://u:geheim@localhost/x", "postgres://localhost/x?user=u&password=geheim&sslmode=disable",
		"host=localhost password=geheim user=u", "host=localhost password='ge heim' user=u",
	} {
		code, out, errOut := run(t, nil, "config", "--database-url", address, "--read-url", address)
		if code != cli.ExitOK || strings.Contains(out, "heim") || strings.Count(out, "xxxxx") != 2 {
			t.Errorf("%s: %d %s %s", address, code, errOut, out)
		}
	}
}

// TestConfig_OtherSources: the values that serve takes from the usual variables, and its own default port, are shown too.
func TestConfig_OtherSources(t *testing.T) {
	t.Parallel()
	env := map[string]string{"DATABASE_URL": "postgres://u:geheim@h/db", "DATABASE_READ_URL": "postgres://u:geheim@r/db"}
	code, out, errOut := run(t, func(name string) string { return env[name] }, "config")
	if code != cli.ExitOK || strings.Contains(out, "geheim") {
		t.Fatalf("%d %s %s", code, errOut, out)
	}
	for name, want := range map[string]string{
		"port": "8080 # default", "database-url": "'postgres://u:xxxxx@h/db' # variable DATABASE_URL", "read-url": "'postgres://u:xxxxx@r/db' # variable DATABASE_READ_URL",
	} {
		if got := setting(out, name); got != name+" = "+want {
			t.Errorf("%q, want %s", got, want)
		}
	}
	if code, out, _ := run(t, onlyEnv("DATABASE_URL", "postgres://h/db"), "config", "--database-url", "postgres://flag/db"); code != cli.ExitOK || setting(out, "database-url") != "database-url = 'postgres://flag/db' # flag" {
		t.Errorf("a flag beside the variable: %s", setting(out, "database-url"))
	}
}

// TestSettings_Readable: a file of settings with a password that other users can read is a warning.
func TestSettings_Readable(t *testing.T) {
	t.Parallel()
	db := pgtest.Open(t)
	for name, c := range map[string]struct {
		mode os.FileMode
		url  string
		warn bool
	}{
		"a password, for everybody":      {0o644, db.URL + "&password=geheim", true},
		"a password, for the user alone": {0o600, db.URL + "&password=geheim", false},
		"no password":                    {0o644, db.URL, false},
	} {
		file := filepath.Join(t.TempDir(), "tidewire.toml")
		if err := os.WriteFile(file, fmt.Appendf(nil, "database-url = %q\n", c.url), c.mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(file, c.mode); err != nil { // whatever the umask is
			t.Fatal(err)
		}
		p := serve(t, "--config", file)
		if warned := strings.Contains(p.Log(), "chmod 600 "+file); warned != c.warn || strings.Contains(p.Log(), "geheim") {
			t.Errorf("%s: warned: %v\n%s", name, warned, p.Log())
		}
		p.Stop(t)
	}
}
