package cli_test

import (
	"net/http"
	"testing"

	"github.com/tidewire/tidewire/websocket"
)

// TestServe_Origins: the flags apply to the endpoints, and a server on a
// loopback address answers only under its own names.
func TestServe_Origins(t *testing.T) {
	t.Parallel()
	s := serve(t, "--only", "echo", "--allow-origin", "https://app.example.com", "--allow-origin", "http://localhost:5173", "--allowed-host", "rt.example.com")
	for origin, allowed := range map[string]bool{"https://app.example.com": true, "http://localhost:5173": true, "https://evil.example": false, "null": false} {
		c, err := websocket.Dial(t.Context(), "ws://"+s.addr+"/ws", websocket.Config{Header: http.Header{"Origin": {origin}}})
		if (err == nil) != allowed {
			t.Errorf("a page of %s: %v", origin, err)
		}
		if err == nil {
			c.Abort()
		}
	}
	for host, status := range map[string]int{"evil.example": 421, "rt.example.com": 200, "localhost": 200, "x.localhost:99": 200} {
		r, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+s.addr+"/metrics", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = host
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != status {
			t.Errorf("/metrics under the name %s: %d, want %d", host, resp.StatusCode, status)
		}
	}
	if code := s.stop(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
}
