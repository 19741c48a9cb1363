package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestParseLanes(t *testing.T) {
	t.Parallel()
	got, err := parseLanes(`
[server]
host = "example.test"
port = "9001"
dummy_message_size = "10KB"
dummy_message_duration = "1h"
[client]
request_duration = "1ms"
total_request = 7
`)
	want := lanesConfig{"example.test", 9001, 10 << 10, time.Hour, time.Millisecond, 7}
	if err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	if got, err := parseLanes("[server]\nport = 81\ndummy_message_size = 65536"); err != nil || got.Port != 81 || got.DummySize != 65536 || got.Requests != 1000 {
		t.Errorf("numbers: %+v, %v", got, err)
	}
	if got, err := parseLanes(""); err != nil || got != defaultLanes() {
		t.Errorf("an empty file: %+v, %v", got, err)
	}
	for text, want := range map[string]string{
		"[server]\nports = 1":                                 "line 2: unknown key server.ports",
		"server = 1":                                          "line 1: server: cannot decode TOML integer: want a table",
		"[server]\nhost = \"\"":                               "server.host: \"\"",
		"[server]\nhost = \"ws://x\"":                         "server.host: \"ws://x\"",
		"[server":                                             "line 1",
		"[server]\nport = 70000":                              "server.port: 70000",
		"[server]\ndummy_message_size = \"0\"":                "server.dummy_message_size: 0 bytes",
		"[server]\ndummy_message_size = \"65MB\"":             "server.dummy_message_size: 68157440 bytes",
		"[server]\ndummy_message_duration = \"0s\"":           "server.dummy_message_duration: \"0s\"",
		"[server]\ndummy_message_duration = \"often\"":        "server.dummy_message_duration: \"often\"",
		"[client]\ntotal_request = \"many\"":                  "client.total_request: \"many\"",
		"[client]\ntotal_request = 99999999999999999999":      "line 2",
		"[client]\nrequest_duration = \"-1ms\"":               "client.request_duration: \"-1ms\"",
		"[client]\ntotal_request = 0":                         "client.total_request: 0",
		"[client]\ntotal_request = 0\nrequest_duration=\"0\"": "client.request_duration",
	} {
		if _, err := parseLanes(text); err == nil || !strings.Contains(err.Error(), want) || strings.ContainsAny(err.Error(), "\n{") {
			t.Errorf("%q: got %v, want %q, in a line", text, err, want)
		}
	}
}

func TestLoadLanesConfig_Files(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "lanes.toml")
	if err := os.WriteFile(file, []byte("[server]\nport = 4711"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := loadLanesConfig(file); err != nil || got.Port != 4711 {
		t.Errorf("the file: %+v, %v", got, err)
	}
	size, period := bytes(5), seconds(time.Second)
	flags := lanesFlags{DummyMessageSize: &size, DummyMessageDuration: &period}
	if got, err := flags.load(file); err != nil || got.Port != 4711 || got.DummySize != 5 || got.DummyEvery != time.Second {
		t.Errorf("flags on top: %+v, %v", got, err)
	}
}
