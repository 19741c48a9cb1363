package bench

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/tidewire/tidewire/websocket"
)

// served starts a server that handles each WebSocket in a goroutine, and returns its URL. The test ends after all have ended.
func served(t *testing.T, handle func(*websocket.Conn)) string {
	t.Helper()
	var mu sync.Mutex // held while a connection begins: Close does not wait for connections that are handed over
	var serving sync.WaitGroup
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if c, err := websocket.Upgrade(w, r, websocket.Config{}); err == nil {
			serving.Go(func() { handle(c) })
		}
	}))
	t.Cleanup(func() {
		server.Close()
		mu.Lock()
		defer mu.Unlock()
		serving.Wait()
	})
	return "ws" + strings.TrimPrefix(server.URL, "http")
}
