package gateway_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/tidewire/tidewire/internal/gateway"
	"github.com/tidewire/tidewire/internal/wire/spec"
)

// TestDescribe: the documents are served without a token, also in closed mode; a client that has one is told that it has not changed.
func TestDescribe(t *testing.T) {
	t.Parallel()
	c := serveClosed(t, func(cfg *gateway.Config) { cfg.Version = "v1.2.3" })
	for path, want := range map[string][]byte{"/v1/openapi.json": spec.OpenAPI("v1.2.3"), "/v1/asyncapi.json": spec.AsyncAPI("v1.2.3")} {
		ask := func(method, tag string) *http.Response {
			r, err := http.NewRequestWithContext(t.Context(), method, "http://"+c.addr+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			if tag != "" {
				r.Header.Set("If-None-Match", tag)
			}
			resp, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			return resp
		}
		status, text := (client{t, c.addr}).do("GET", path, "")
		if status != http.StatusOK || text != strings.TrimSpace(string(want)) || !json.Valid(want) {
			t.Errorf("%s: %d, %.100s", path, status, text)
		}
		first := ask("GET", "")
		if tag := first.Header.Get("ETag"); ask("GET", tag).StatusCode != http.StatusNotModified || ask("GET", `"other"`).StatusCode != http.StatusOK {
			t.Errorf("%s: ETag %s is not compared", path, tag)
		}
		if kept := first.Header.Get("Cache-Control"); kept != "public, no-cache" {
			t.Errorf("%s: Cache-Control %q", path, kept)
		}
		if got := c.status("POST", path, "{}", ""); got != "405 method_not_allowed" {
			t.Errorf("POST %s: %s", path, got)
		}
	}
}

// TestClientScript: pages get the client from the server, without a token.
func TestClientScript(t *testing.T) {
	t.Parallel()
	c := serveClosed(t, nil)
	resp, err := http.Get("http://" + c.addr + "/client.js")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK || !strings.Contains(string(text), "tidewire.v1") {
		t.Fatalf("%d, %v, %.100s", resp.StatusCode, err, text)
	}
	for name, want := range map[string]string{"Content-Type": "text/javascript; charset=utf-8", "Cache-Control": "public, no-cache"} {
		if got := resp.Header.Get(name); got != want {
			t.Errorf("%s %q, want %q", name, got, want)
		}
	}
	if resp.Header.Get("ETag") == "" {
		t.Error("no ETag")
	}
	if got := c.status("POST", "/client.js", "{}", ""); got != "405 method_not_allowed" {
		t.Errorf("POST: %s", got)
	}
}
