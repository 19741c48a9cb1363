package gateway

import (
	"errors"
	"net/http"

	"github.com/tidewire/tidewire/websocket"
)

// allowed applies Config.Access, like the WebSocket endpoints, and adds the CORS
// headers for pages of allowed other origins. It returns false if it has answered
// the request: with an error, or because it was a CORS preflight.
func (a *api) allowed(w http.ResponseWriter, r *http.Request) bool {
	access := a.server.cfg.Access
	w.Header().Add("Vary", "Origin")
	if err := access.Check(r); err != nil {
		writeError(w, foreign(err))
		return false
	}
	origin, ok := access.CrossOrigin(r)
	if !ok {
		return true
	}
	h := w.Header()
	h.Set("Access-Control-Allow-Origin", origin) // exactly, and never with credentials
	if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
		h.Set("Access-Control-Expose-Headers", "Allow, Retry-After, WWW-Authenticate, X-Request-Id")
		return true
	}
	h.Set("Access-Control-Allow-Methods", "GET, POST, PUT, PATCH, DELETE")
	h.Set("Access-Control-Allow-Headers", "Authorization, Content-Type, Idempotency-Key, Last-Event-ID, X-Request-Id")
	h.Set("Access-Control-Max-Age", "600")
	w.WriteHeader(http.StatusNoContent)
	return false
}

// foreign is the answer to a client that Config.Access rejects.
func foreign(err error) reply {
	with := refusal(codeForeign)
	var refused *websocket.HandshakeError
	if errors.As(err, &refused) {
		with.Message = refused.Reason
		if refused.Status == http.StatusMisdirectedRequest {
			with.Code = codeHost
		}
	}
	return with
}

// guarded protects a handler outside the API with Config.Access.
func (s *Server) guarded(next http.Handler) http.Handler { return guard(s.cfg.Access, next) }

func guard(access *websocket.Access, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := access.Check(r); err != nil {
			writeError(w, foreign(err))
			return
		}
		next.ServeHTTP(w, r)
	})
}
