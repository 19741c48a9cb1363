package gateway_test

import (
	"encoding/json"
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
