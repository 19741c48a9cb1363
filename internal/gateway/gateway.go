package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/tidewire/tidewire/internal/budget"
	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/websocket"
)

// Endpoint names what --only can single out.
type Endpoint string

// The endpoints that can be served alone, at /ws as well as at their own path.
const (
	All    Endpoint = ""
	Ingest Endpoint = "ingest"
	Echo   Endpoint = "echo"
	Chat   Endpoint = "chat"
	Lanes  Endpoint = "lanes"
)

// Config configures a Server.
type Config struct {
	// Only is the one endpoint to serve, also at /ws. Defaults to All.
	Only Endpoint
	// Engine serves /ws, /ws/ingest, /v1 and stored rooms. Its Ingest is required for All and Ingest. Defaults to none.
	Engine engine.Engine
	// Chat configures /ws/chat.
	Chat ChatConfig
	// Lanes configures /ws/lanes.
	Lanes LanesConfig
	// Sessions bounds the connections on /ws, where All is served: chats, and
	// what the Engine has.
	Sessions SessionConfig
	// MaxPartitions is the most partitions of a stream that clients make: each is
	// a stream of its own. Defaults to 64.
	MaxPartitions int
	// MaxMessage is the largest message accepted, in bytes. Defaults to 1 MiB.
	MaxMessage int
	// Access decides which web pages may use /ws and /v1, and under which host
	// names. Defaults to the pages of the server's own origin.
	Access *websocket.Access
	// Budget bounds the memory that connections and requests make the server
	// hold. When it is short, those that hold most wait, and then are ended, with
	// 1013 or 503. Defaults to one without a limit.
	Budget *budget.Budget
	// DrainTimeout is how long Shutdown lets a peer that asked for no
	// acknowledgements go on sending before it answers the Close frame, and a
	// request's body arrive. Defaults to 3 s.
	DrainTimeout time.Duration
	// Metrics is shown at /metrics; the server adds its own. Defaults to a new
	// registry.
	Metrics *prometheus.Registry
	// Profile adds net/http/pprof under /debug/pprof/. Defaults to false.
	Profile bool
	// Log receives what is wrong with connections. Defaults to none.
	Log *slog.Logger
}

func (c Config) withDefaults() Config {
	if c.Engine.Ready == nil {
		c.Engine.Ready = func(context.Context) error { return nil }
	}
	if c.MaxMessage == 0 {
		c.MaxMessage = 1 << 20
	}
	if c.MaxPartitions == 0 {
		c.MaxPartitions = 64
	}
	if c.Budget == nil {
		c.Budget = budget.New(0)
	}
	if c.DrainTimeout == 0 {
		c.DrainTimeout = 3 * time.Second
	}
	if c.Metrics == nil {
		c.Metrics = prometheus.NewRegistry()
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

// Server is the http.Handler of all endpoints. End it with Shutdown: its
// connections have left the HTTP server's care.
type Server struct {
	cfg   Config
	mux   *http.ServeMux
	conns *connections
	chats *chatServer // nil if not served
	flood *lanesServer
	// sessions and api are nil unless All is served.
	sessions *sessions
	api      *api
	// work outlives requests: it is what connections use towards the store. It
	// ends when Shutdown's time is up.
	work context.Context
	stop context.CancelFunc
}

// New returns a Server.
func New(cfg Config) *Server {
	cfg = cfg.withDefaults()
	work, stop := context.WithCancel(context.Background())
	s := &Server{cfg: cfg, mux: http.NewServeMux(), conns: newConnections(cfg), work: work, stop: stop}
	s.mux.HandleFunc("GET /healthz", s.healthz)
	s.mux.HandleFunc("GET /health", s.healthz)
	s.mux.HandleFunc("GET /readyz", s.readyz)
	s.mux.Handle("GET /metrics", s.guarded(promhttp.HandlerFor(cfg.Metrics, promhttp.HandlerOpts{})))
	if cfg.Only == All || cfg.Only == Ingest {
		s.mux.HandleFunc("/ws/ingest", s.ingest)
	}
	if cfg.Only == All || cfg.Only == Chat {
		s.chats = newChatServer(cfg.Chat, cfg.Engine, work, cfg.Metrics, &rareLog{log: cfg.Log})
		s.mux.HandleFunc("/ws/chat", s.chat)
	}
	if cfg.Only == All || cfg.Only == Lanes {
		s.flood = newLanesServer(cfg.Lanes, cfg.Metrics)
		s.mux.HandleFunc("/ws/lanes", s.lanes)
	}
	switch cfg.Only {
	case All:
		s.sessions = newSessions(cfg, s.chats, work)
		s.mux.HandleFunc("/ws", s.session)
		s.api = newAPI(s)
		s.mux.Handle("/v1/", s.api)
	case Lanes:
		s.mux.HandleFunc("/ws", s.lanes)
	case Chat:
		s.mux.HandleFunc("/ws", s.chat)
	case Ingest:
		s.mux.HandleFunc("/ws", s.ingest)
	case Echo:
		s.mux.HandleFunc("/ws", s.echo)
		s.mux.HandleFunc("/ws/echo", s.echo)
		s.mux.HandleFunc("/{$}", s.echo) // conformance suites dial the root
	}
	if cfg.Profile {
		for path, handle := range map[string]http.HandlerFunc{"": pprof.Index, "profile": pprof.Profile, "trace": pprof.Trace} {
			s.mux.Handle("/debug/pprof/"+path, s.guarded(handle))
		}
	}
	return s
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	http.NewResponseController(w).SetWriteDeadline(time.Time{}) // which an earlier request of the connection may have left
	s.conns.panics.serveHTTP(w, r, s.mux)
}

// Shutdown refuses new connections, stores and answers what has been received
// on the others, and closes them with code 1001. When ctx ends first, the rest
// is cut off and ctx's error is returned.
func (s *Server) Shutdown(ctx context.Context) error {
	defer s.stop()
	if s.chats != nil {
		defer func() {
			s.chats.stored.stop()
			s.chats.hub.Wait()
		}()
	}
	if s.sessions != nil {
		defer s.sessions.flusher.stop()
		defer s.api.close()
	}
	done := s.conns.close()
	s.EndPolls()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		s.stop()
		s.conns.abort()
		<-done
		return fmt.Errorf("gateway: connections cut off: %w", ctx.Err())
	}
}

// GiveUp ends what requests and connections wait for: each of them is answered with
// an error, and may still take that. Call it during a stop, when the stores have
// given up what they had accepted, and before Shutdown's ctx ends.
func (s *Server) GiveUp() { s.stop() }

// EndPolls answers requests that wait for messages with what there is, at once
// and from now on, and gives those whose body has not arrived DrainTimeout:
// http.Server's Shutdown waits for them. Give it to RegisterOnShutdown.
func (s *Server) EndPolls() {
	if s.api != nil {
		s.api.endPolls()
	}
}

func (s *Server) healthz(w http.ResponseWriter, _ *http.Request) {
	io.WriteString(w, "ok\n")
}

func (s *Server) readyz(w http.ResponseWriter, r *http.Request) {
	if err := s.cfg.Engine.Ready(r.Context()); err != nil {
		s.cfg.Log.Warn("not ready", "error", err)
		reason := "not ready"
		if public, ok := errors.AsType[*engine.NotReadyError](err); ok {
			reason += ": " + public.Reason
		}
		http.Error(w, reason, http.StatusServiceUnavailable)
		return
	}
	text := "ok\n"
	if s.cfg.Engine.Remark != nil {
		if remark := s.cfg.Engine.Remark(); remark != "" {
			text += remark + "\n"
		}
	}
	io.WriteString(w, text)
}

// accept makes a WebSocket of the request and runs serve on it in a goroutine
// of its own, so that what HTTP holds for the request is released. onStop is
// called once if the server shuts down while serve runs.
func (s *Server) accept(w http.ResponseWriter, r *http.Request, cfg websocket.Config, serve func(*connection)) {
	slot, ok := s.conns.reserve()
	if !ok {
		http.Error(w, "server is shutting down", http.StatusServiceUnavailable)
		return
	}
	serving := false
	defer func() {
		if !serving { // also after a panic
			slot.release()
		}
	}()
	memory := new(socketMemory)
	cfg.MaxMessage, cfg.Access, cfg.Memory = s.cfg.MaxMessage, s.cfg.Access, memory
	conn, err := websocket.Upgrade(w, r, cfg)
	if err != nil {
		return // answered already
	}
	c := slot.open(conn)
	memory.holder = c.memory
	serving = true
	go func() {
		defer slot.release()
		c.guard(func() { serve(c) })
		if c.broken.Load() { // the endpoint has closed it, unless it was the endpoint's end that failed
			c.Close(websocket.StatusInternalError, "")
		}
	}()
}
