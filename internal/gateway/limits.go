package gateway

import (
	"net/http"
	"net/netip"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidewire/tidewire/internal/auth"
	"github.com/tidewire/tidewire/internal/limits"
	"github.com/tidewire/tidewire/websocket"
)

const (
	// statusTooMany is the close code for a client that has too many connections, or sends too much: try again later.
	statusTooMany websocket.StatusCode = 4429
	// connectionRetry is when a client may try again that was refused because of the number of connections.
	connectionRetry = 5 * time.Second
	// maxHeaders is how many header lines a request may have. Each takes up to a hundred bytes of memory beside its text.
	maxHeaders = 100
)

// registerLimits adds the figures of the limits to /metrics.
func registerLimits(r *limits.Registry, metrics prometheus.Registerer) {
	for why := 1; why < limits.Reasons; why++ {
		why := limits.Reason(why)
		metrics.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "tidewire_refused_connections_total", Help: "Connections and HTTP requests refused because there were too many, by the limit.",
			ConstLabels: prometheus.Labels{"limit": why.String()},
		}, func() float64 { return float64(r.Refused(why)) }))
	}
	metrics.MustRegister(
		prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "tidewire_rate_limited_total", Help: "Messages and HTTP requests over the rate of a connection or user."},
			func() float64 { return float64(r.Limited()) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "tidewire_ended_pending_sockets_total", Help: "Sockets of unknown clients closed because another client needed the place."},
			func() float64 { return float64(r.Ended()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "tidewire_sockets", Help: "Sockets accepted and open: WebSockets, and those of HTTP."},
			func() float64 { return float64(r.Stats().Sockets) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "tidewire_pending_sockets", Help: "Sockets whose client is not known yet."},
			func() float64 { return float64(r.Stats().Pending) }))
}

// client returns whose request it is, for the limits.
func (s *Server) client(r *http.Request, caller *auth.Caller) limits.Client {
	return clientOf(s.limits.ClientAddress(r), caller)
}

func clientOf(address netip.Addr, caller *auth.Caller) limits.Client {
	c := limits.Client{Address: address}
	if caller != nil {
		c.User, c.Service = caller.User, hasKey(caller)
	}
	return c
}

// hasKey reports whether a caller is a program with an API key.
func hasKey(c *auth.Caller) bool { return c.Kind == auth.ByKey }

// known says that the client of a request's socket is known. In open mode each one is that has sent a request.
func (s *Server) known(r *http.Request) {
	if caller, _ := callerOf(r); caller != nil || s.cfg.Auth.Policy == nil {
		if socket := limits.FromContext(r.Context()); socket != nil {
			socket.Known()
		}
	}
}

// tooManyHeaders refuses a request with more than maxHeaders header lines.
func tooManyHeaders(w http.ResponseWriter, r *http.Request) bool {
	n := 0
	for _, lines := range r.Header {
		n += len(lines)
	}
	if n <= maxHeaders {
		return false
	}
	w.Header().Set("Connection", "close")
	http.Error(w, "the request has more than "+strconv.Itoa(maxHeaders)+" header lines", http.StatusRequestHeaderFieldsTooLarge)
	return true
}

// count counts the socket of a handshake, or answers that there are too many.
func (s *slot) count(server *Server, w http.ResponseWriter, r *http.Request, caller *auth.Caller) bool {
	s.address = server.limits.ClientAddress(r)
	if s.socket = limits.FromContext(r.Context()); s.socket == nil {
		s.socket, s.ownSocket = server.limits.New(), true
	}
	why := s.socket.Handshake(clientOf(s.address, caller), server.cfg.Auth.Policy != nil && caller == nil)
	if why != limits.None {
		server.tooMany(w, r, why, s.address)
	}
	return why == limits.None
}

// uncount is called when the connection has ended, or did not come about. The Conn of a listener's socket ends with the socket.
func (s *slot) uncount() {
	switch {
	case s.socket == nil:
	case s.ownSocket:
		s.socket.Close()
	case s.conn == nil:
		s.socket.Undo()
	}
}

// tooMany answers a request that is refused because of the number of connections. The connection is closed, so that another client gets its place.
func (s *Server) tooMany(w http.ResponseWriter, r *http.Request, why limits.Reason, client netip.Addr) {
	s.limits.Log().Warn(client, "a client was refused: there are too many connections or requests", "limit", why)
	w.Header().Set("Connection", "close")
	dropBody(w, r)
	writeError(w, later(codeTooManyConnections, connectionRetry))
}

// later is a refusal that says when to try again.
func later(why code, wait time.Duration) reply {
	with := refusal(why)
	with.RetryAfterMS = wait.Milliseconds() + 1
	return with
}

// identified says whose connection it is. If the user has too many, the connection is ended after the answer.
func (c *connection) identified(caller *auth.Caller) *problem {
	if why := c.socket.Identify(clientOf(c.address, caller)); why != limits.None {
		c.owner.limits.Log().Warn(c.address, "a connection was closed: its user has too many", "user", caller.User)
		c.endWith(statusTooMany, "too many connections")
		return because(codeTooManyConnections)
	}
	c.meterFor(caller)
	c.memory.Join("user " + caller.User)
	return nil
}

// userOrAddress names those who share memory and slots: the user once that is known, and otherwise the address.
func userOrAddress(address netip.Addr, caller *auth.Caller) string {
	if caller != nil && caller.User != "" {
		return "user " + caller.User
	}
	return "address " + limits.Key(address).String()
}

// meterFor sets the rate of the connection. Programs with an API key have none.
func (c *connection) meterFor(caller *auth.Caller) {
	if c.meter = nil; caller == nil || !hasKey(caller) {
		c.meter = c.socket.Meter()
	}
}

// finalClose is the Close frame with which the server ends a connection.
type finalClose struct {
	code   websocket.StatusCode
	reason string
}

// endWith ends the connection after the messages that it has read are answered.
func (c *connection) endWith(code websocket.StatusCode, reason string) {
	c.final.CompareAndSwap(nil, &finalClose{code, reason})
	c.SetReadDeadline(time.Now())
}
