package serve

import (
	"encoding/json"
	"io"
	"net/http"
	"sync/atomic"

	"github.com/tidewire/tidewire/internal/gateway"
)

// Front is what answers at the listeners. Before there is a gateway, it answers that the server is not ready, and why: a server
// whose database is away can be watched, and clients and load balancers need not wait for it.
type Front struct {
	http, admin *http.Server
	failed      chan error

	reason          atomic.Pointer[string]
	served, watched atomic.Pointer[http.Handler] // of the gateway, for each kind of listener
}

// Listen begins to answer at the listeners of cfg, which needs no Gateway but its log. Give it to Run as Config.Front, or Close it.
func Listen(cfg Config, reason string) *Front {
	f := newFront(cfg)
	f.Waits(reason)
	f.serve(cfg)
	return f
}

func newFront(cfg Config) *Front {
	f := &Front{failed: make(chan error, len(cfg.Listeners)+len(cfg.Admin))}
	f.http = newHTTPServer(f.handler(&f.served), cfg)
	f.admin = newAdminServer(f.handler(&f.watched), cfg.IdleTimeout)
	return f
}

// serve begins to answer at the listeners.
func (f *Front) serve(cfg Config) {
	for _, l := range cfg.Listeners {
		go func() { f.failed <- f.http.Serve(l) }()
	}
	for _, l := range cfg.Admin {
		go func() { f.failed <- f.admin.Serve(l) }()
	}
}

// open passes all further requests to the gateway.
func (f *Front) open(edge *gateway.Server, cfg Config) {
	served, watched := http.Handler(edge), edge.Admin(cfg.AdminAccess)
	f.served.Store(&served)
	f.watched.Store(&watched)
	f.http.RegisterOnShutdown(edge.EndPolls)
}

// Waits sets the reason why the server is not ready.
func (f *Front) Waits(reason string) { f.reason.Store(&reason) }

// Close closes the listeners and all connections.
func (f *Front) Close() {
	f.http.Close()
	f.admin.Close()
}

func (f *Front) handler(of *atomic.Pointer[http.Handler]) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if h := of.Load(); h != nil {
			(*h).ServeHTTP(w, r)
			return
		}
		f.notReady(w, r)
	})
}

// notReady answers as the gateway does while it cannot serve.
func (f *Front) notReady(w http.ResponseWriter, r *http.Request) {
	text := "not ready: " + *f.reason.Load()
	switch r.URL.Path {
	case "/healthz", "/health":
		io.WriteString(w, "ok\n")
		return
	case "/readyz":
		http.Error(w, text, http.StatusServiceUnavailable)
		return
	}
	answer, _ := json.Marshal(map[string]any{"error": map[string]any{"code": "unavailable", "message": text, "retryable": true, "retry_after_ms": 1000}})
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	h.Set("Retry-After", "1")
	w.WriteHeader(http.StatusServiceUnavailable)
	w.Write(append(answer, '\n'))
}
