package gateway_test

import (
	"errors"
	"net/http"
	"testing"

	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/gateway"
	"github.com/tidewire/tidewire/websocket"
)

// TestAccess_AllowedOrigins: allowed origins may use /v1 and /ws, and others
// may not.
func TestAccess_AllowedOrigins(t *testing.T) {
	t.Parallel()
	access, err := websocket.NewAccess(websocket.AccessConfig{Origins: []string{"https://app.example.com", "https://*.example.org"}, Loopback: true})
	if err != nil {
		t.Fatal(err)
	}
	streams := newFakeStreams(t, "orders")
	_, addr := serve(t, gateway.Config{Engine: engine.Engine{Ingest: (&memory{}).source, Streams: streams}, Access: access})
	do := func(method, origin, host string, headers ...string) *http.Response {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, "http://"+addr+"/v1/streams", nil)
		if err != nil {
			t.Fatal(err)
		}
		if origin != "" {
			r.Header.Set("Origin", origin)
		}
		if host != "" {
			r.Host = host
		}
		for i := 0; i < len(headers); i += 2 {
			r.Header.Set(headers[i], headers[i+1])
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.Header.Get("Vary") != "Origin" || resp.Header.Get("Access-Control-Allow-Credentials") != "" {
			t.Errorf("%s %s: headers %v", method, origin, resp.Header)
		}
		return resp
	}
	for origin, allowed := range map[string]string{
		"": "", "https://app.example.com": "https://app.example.com", "https://a.example.org": "https://a.example.org",
		"https://example.org": "no", "http://app.example.com": "no", "https://app.example.com:8443": "no", "null": "no", "https://app.example.com.evil.example": "no",
	} {
		resp := do("GET", origin, "")
		status, echo := http.StatusOK, allowed
		if allowed == "no" {
			status, echo = http.StatusForbidden, ""
		}
		if resp.StatusCode != status || resp.Header.Get("Access-Control-Allow-Origin") != echo {
			t.Errorf("GET from %q: %d, allowed %q; want %d, %q", origin, resp.StatusCode, resp.Header.Get("Access-Control-Allow-Origin"), status, echo)
		}
		preflight := do("OPTIONS", origin, "", "Access-Control-Request-Method", "DELETE", "Access-Control-Request-Headers", "content-type")
		if can := preflight.StatusCode == http.StatusNoContent && preflight.Header.Get("Access-Control-Allow-Methods") == "GET, POST, PUT, PATCH, DELETE"; can != (echo != "") {
			t.Errorf("preflight from %q: %d %v", origin, preflight.StatusCode, preflight.Header)
		}
		conn, err := websocket.Dial(t.Context(), "ws://"+addr+"/ws", websocket.Config{Header: http.Header{"Origin": {origin}}})
		if err == nil {
			conn.Abort()
		}
		var refused *websocket.HandshakeError
		if origin != "" && (err == nil) != (echo != "") || err != nil && (!errors.As(err, &refused) || refused.Status != http.StatusForbidden) {
			t.Errorf("/ws from %q: %v", origin, err)
		}
	}
	if resp := do("GET", "http://evil.example", "evil.example"); resp.StatusCode != http.StatusMisdirectedRequest {
		t.Errorf("a page whose name was made to resolve here: %d, want 421", resp.StatusCode)
	}
	r, _ := http.NewRequestWithContext(t.Context(), "GET", "http://"+addr+"/metrics", nil)
	r.Host = "evil.example"
	if resp, err := http.DefaultClient.Do(r); err != nil || resp.StatusCode != http.StatusMisdirectedRequest {
		t.Errorf("/metrics under a foreign name: %v, %v", resp, err)
	} else {
		resp.Body.Close()
	}
}
