package bench

import (
	"net/http"
	"sync/atomic"

	"github.com/tidewire/tidewire/websocket"
)

// handler serves each WebSocket in a new goroutine and counts them.
func handler(serve func(*websocket.Conn), opened *atomic.Int64) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := websocket.Upgrade(w, r, websocket.Config{})
		if err != nil {
			return
		}
		opened.Add(1)
		go serve(c)
	})
}
