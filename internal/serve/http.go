package serve

import (
	"net/http"
	"time"

	"github.com/tidewire/tidewire/internal/gateway"
)

const (
	// headerTimeout bounds how long a request's header takes to arrive.
	headerTimeout = 10 * time.Second
	// bodyTimeout bounds a body that no handler reads. The HTTP API sets a time of
	// its own for those that it does.
	bodyTimeout = 30 * time.Second
)

// newHTTPServer returns the server of HTTP requests, WebSocket handshakes among
// them: a connection that was upgraded has no time-outs of HTTP any more.
func newHTTPServer(server *gateway.Server, idle time.Duration) *http.Server {
	h := &http.Server{
		Handler:           boundBody(server),
		ReadHeaderTimeout: headerTimeout, IdleTimeout: idle, MaxHeaderBytes: 16 << 10,
	}
	h.RegisterOnShutdown(server.EndPolls)
	return h
}

// boundBody gives a request's body a time to arrive: without one, net/http waits
// for a body that it only throws away. There is no http.Server.ReadTimeout,
// because it would end long polls.
func boundBody(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTimeout))
		}
		next.ServeHTTP(w, r)
	})
}
