package serve

import (
	"cmp"
	"crypto/tls"
	stdlog "log"
	"net/http"
	"time"

	"github.com/tidewire/tidewire/internal/limits"
)

const (
	// headerTimeout bounds how long a request's header takes to arrive, and the TLS
	// handshake before it.
	headerTimeout = 10 * time.Second
	// headerSlop is how many more bytes net/http takes than it is told.
	headerSlop = 4 << 10
	// bodyTimeout bounds a body that no handler reads. The HTTP API sets another
	// deadline for bodies that it reads.
	bodyTimeout = 30 * time.Second
)

// newHTTPServer returns the server of HTTP requests, including WebSocket
// handshakes. Its timeouts do not apply to a connection after the upgrade.
func newHTTPServer(handler http.Handler, cfg Config) *http.Server {
	return &http.Server{
		Handler: boundBody(handler),
		// net/http answers "OPTIONS *" itself, after the whole body and without a deadline.
		DisableGeneralOptionsHandler: true,
		ConnContext:                  limits.ConnContext,
		ReadHeaderTimeout:            cmp.Or(cfg.HeaderTimeout, headerTimeout), IdleTimeout: cfg.IdleTimeout, MaxHeaderBytes: max(cmp.Or(cfg.MaxHeaderBytes, 16<<10)-headerSlop, 1),
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){}, // no HTTP/2
		ErrorLog:     stdlog.New(&httpLog{log: cfg.Gateway.Log}, "", 0),
	}
}

// newAdminServer returns the server of an admin listener.
func newAdminServer(handler http.Handler, idle time.Duration) *http.Server {
	return &http.Server{
		Handler: boundBody(handler), DisableGeneralOptionsHandler: true, ReadHeaderTimeout: headerTimeout, IdleTimeout: idle, MaxHeaderBytes: 16 << 10,
	}
}

// boundBody sets a deadline for a request's body: without one, net/http waits
// without a limit for a body that it only discards. http.Server.ReadTimeout is
// not used, because it would end long polls.
func boundBody(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTimeout))
		}
		next.ServeHTTP(w, r)
	})
}
