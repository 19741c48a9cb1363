package cli_test

import (
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/tidewire/tidewire/internal/cli"
)

// TestConsole_ClosedMode: the address has a key that is exchanged once; the rights are those of the command.
func TestConsole_ClosedMode(t *testing.T) {
	t.Parallel()
	s := shell{t, migrated(t).URL}
	p := serve(t, "--auth-api-keys", "--database-url", s.url)
	out := s.run("console", "--print", "--url", "http://"+p.Addr, "--allow", "read stream:**")
	at, err := url.Parse(strings.TrimSpace(out))
	if err != nil {
		t.Fatal(err)
	}
	key, ok := strings.CutPrefix(at.Fragment, "key=")
	if !ok || at.RawQuery != "" || at.Path != "/console/" {
		t.Fatalf("%s", out)
	}
	for i, want := range []int{http.StatusOK, http.StatusUnauthorized} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+p.Addr+"/v1/keys/exchange", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+key)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("exchange %d: %d, want %d", i+1, resp.StatusCode, want)
		}
	}
	if list := s.run("keys", "list"); strings.Count(list, "console") != 3 || strings.Count(list, "revoked") != 1 || strings.Count(list, "active") != 1 { // two keys, and the right
		t.Errorf("%s", list)
	}
}

// TestConsole_OpenMode: the address has no key. It is printed, or passed to the program that opens browsers. A server that is not there is named.
func TestConsole_OpenMode(t *testing.T) {
	s := shell{t, migrated(t).URL}
	p := serve(t, "--database-url", s.url)
	want := "http://" + p.Addr + "/console/"
	if got := strings.TrimSpace(s.run("console", "--print", "--url", "http://"+p.Addr)); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	for _, wrong := range []string{"localhost:8080", "ftp://x", "http://"} {
		if _, errOut := s.in("", cli.ExitUsage, "console", "--print", "--url", wrong); !strings.Contains(errOut, "such as http://localhost:8080") {
			t.Errorf("%s: %s", wrong, errOut)
		}
	}
	if _, errOut := s.in("", cli.ExitFailure, "console", "--print", "--url", "http://127.0.0.1:1"); !strings.Contains(errOut, "tidewire serve") {
		t.Errorf("%s", errOut)
	}
	if runtime.GOOS != "linux" {
		t.Skip("the program that opens addresses has another name")
	}
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	_, errOut := s.in("", cli.ExitOK, "console", "--url", "http://"+p.Addr)
	if !strings.Contains(errOut, "No browser was opened") {
		t.Errorf("%s", errOut)
	}
	seen := filepath.Join(dir, "seen")
	if err := os.WriteFile(filepath.Join(dir, "xdg-open"), []byte("#!/bin/sh\necho \"$1\" >"+seen+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	out, errOut := s.in("", cli.ExitOK, "console", "--url", "http://"+p.Addr)
	if got, err := os.ReadFile(seen); err != nil || strings.TrimSpace(string(got)) != want || out != "" || !strings.Contains(errOut, "is open in your browser") {
		t.Errorf("%v: %s; %s; %s", err, got, out, errOut)
	}
}
