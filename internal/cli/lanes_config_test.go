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
		"[server]\nports = 1":                                 "line 2: unknown key",
		"[sever]":                                             "unknown key",
		"[server":                                             "line 1",
		"[server]\nport = 70000":                              "server.port: 70000",
		"[server]\nport = \"http\"":                           "server.port: http",
		"[server]\ndummy_message_size = \"0\"":                "server.dummy_message_size: 0 bytes",
		"[server]\ndummy_message_size = -5":                   "server.dummy_message_size: \"-5\"",
		"[server]\ndummy_message_size = \"1TB\"":              "server.dummy_message_size: \"1TB\"",
		"[server]\ndummy_message_size = \"65MB\"":             "server.dummy_message_size: 68157440 bytes",
		"[server]\ndummy_message_duration = \"0s\"":           "server.dummy_message_duration: \"0s\"",
		"[server]\ndummy_message_duration = \"often\"":        "server.dummy_message_duration: \"often\"",
		"[server]\ndummy_message_duration = 5":                "line 2",
		"[client]\nrequest_duration = \"-1ms\"":               "client.request_duration: \"-1ms\"",
		"[client]\ntotal_request = 0":                         "client.total_request: 0",
		"[client]\ntotal_request = 0\nrequest_duration=\"0\"": "client.request_duration",
	} {
		if _, err := parseLanes(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
	}
}

func TestLoadLanesConfig_Files(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	if got, err := loadLanesConfig(""); err != nil || got != defaultLanes() {
		t.Errorf("no file: %+v, %v", got, err)
	}
	if _, err := loadLanesConfig("missing.toml"); err == nil || !strings.Contains(err.Error(), "missing.toml") {
		t.Errorf("a file that was named is missing: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, lanesFile), []byte("[server]\nport = 4711"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := loadLanesConfig(""); err != nil || got.Port != 4711 {
		t.Errorf("config.toml: %+v, %v", got, err)
	}
	flags := lanesFlags{DummyMessageSize: 5, DummyMessageDuration: seconds(time.Second)}
	if got, err := flags.load(true); err != nil || got.Port != 4711 || got.DummySize != 5 || got.DummyEvery != time.Second {
		t.Errorf("flags on top: %+v, %v", got, err)
	}
	flags.DummyMessageSize = 1 << 40
	if _, err := flags.load(true); err == nil {
		t.Error("a size above the limit was accepted")
	}
}
