package gateway_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/tidewire/tidewire/internal/gateway"
	"github.com/tidewire/tidewire/internal/wire/spec"
)

// TestDescribe: the documents and the client are served without a token, also in closed mode; a client that has one gets the answer that it has not changed. The console
// is served so, too, and to no page of another origin.
func TestDescribe(t *testing.T) {
	t.Parallel()
	closed := serveClosed(t, func(cfg *gateway.Config) { cfg.Version = "v1.2.3" })
	c := client{t, closed.addr}
	for path, want := range map[string][]byte{"/v1/openapi.json": spec.OpenAPI("v1.2.3"), "/v1/asyncapi.json": spec.AsyncAPI("v1.2.3"), "/client.js": nil} {
		first, text := c.fetch("GET", path, "")
		if first.StatusCode != http.StatusOK || want != nil && (text != strings.TrimSpace(string(want)) || !json.Valid(want)) || want == nil && !strings.Contains(text, "tidewire.v1") {
			t.Errorf("%s: %d, %.100s", path, first.StatusCode, text)
		}
		tag := first.Header.Get("ETag")
		same, _ := c.fetch("GET", path, "", "If-None-Match", tag)
		other, _ := c.fetch("GET", path, "", "If-None-Match", `"other"`)
		if same.StatusCode != http.StatusNotModified || other.StatusCode != http.StatusOK || tag == "" {
			t.Errorf("%s: ETag %s is not compared", path, tag)
		}
		kind := map[bool]string{true: "text/javascript; charset=utf-8", false: "application/json"}[want == nil]
		if got := first.Header.Get("Content-Type"); got != kind || first.Header.Get("Cache-Control") != "public, no-cache" {
			t.Errorf("%s: %s, Cache-Control %q", path, got, first.Header.Get("Cache-Control"))
		}
		if got := closed.status("POST", path, "{}", ""); got != "405 method_not_allowed" {
			t.Errorf("POST %s: %s", path, got)
		}
	}
	for origin, want := range map[string]int{"http://" + c.addr: http.StatusOK, "https://elsewhere.example": http.StatusForbidden} {
		if resp, _ := c.fetch("GET", "/console/streams/orders?after=10", "", "Origin", origin); resp.StatusCode != want {
			t.Errorf("the console from %q: %d, want %d", origin, resp.StatusCode, want)
		}
	}
}
