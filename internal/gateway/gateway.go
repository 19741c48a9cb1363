package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/pprof"
	"net/url"
	"strings"
	"sync/atomic"
	"time"
	"unique"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/tidewire/tidewire/internal/auth"
	"github.com/tidewire/tidewire/internal/budget"
	"github.com/tidewire/tidewire/internal/console"
	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/limits"
	"github.com/tidewire/tidewire/internal/overview"
	"github.com/tidewire/tidewire/websocket"
)

// Endpoint names an endpoint for --only.
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
	// Sessions sets the limits of connections on /ws when All is served: chats,
	// and the parts of the Engine.
	Sessions SessionConfig
	// Version is that of the server, which clients are told. Defaults to none.
	Version string
	// MaxPartitions is the most partitions of a stream that clients create: each
	// is a separate stream. Defaults to 64.
	MaxPartitions int
	// MaxMessage is the largest message accepted, in bytes. Defaults to 1 MiB.
	MaxMessage int
	// Compression is offered to clients of /ws and /ws/chat, and used once they have shown who they are. Defaults to none.
	Compression *websocket.Compression
	// MaxJSONDepth is how deep the JSON of a message may be nested, with its own braces. Defaults to 64.
	MaxJSONDepth int
	// Access decides which web pages may use /ws and /v1, and under which host
	// names. Defaults to the pages of the server's own origin.
	Access *websocket.Access
	// Budget limits the memory that the server holds for connections and
	// requests. When memory is short, those that hold the most wait, and then are
	// ended with 1013 or 503. Defaults to a Budget without a limit.
	Budget *budget.Budget
	// Auth configures authentication. Defaults to open mode: everybody may do everything.
	Auth AuthConfig
	// DrainTimeout is how long Shutdown waits for the Close frame of a peer
	// without acknowledgements, which may still send, and for a request's body.
	// Defaults to 3 s.
	DrainTimeout time.Duration
	// BodyTimeout is how long the body of an HTTP request may take to arrive. Defaults to 30 s.
	BodyTimeout time.Duration
	// Limits bounds connections and rates. Its Listener and ConnContext count sockets too that send no request. Defaults to no limits.
	Limits *limits.Registry
	// Nodes are the other servers of a cluster: deliveries that clients have taken from one of them by HTTP can be settled here. Defaults to none.
	Nodes Nodes
	// Bench has results of benchmarks, and starts some. Defaults to none.
	Bench Bench
	// Connected is told of each connection on /ws and /ws/chat once it is known whose it is: in closed mode when its token has come. user is empty without one.
	// It must be brief. Defaults to none.
	Connected func(user string) ConnectionObserver
	// Metrics is shown at /metrics; the server adds its own. Defaults to a new
	// registry.
	Metrics *prometheus.Registry
	// Profile adds net/http/pprof under /debug/pprof/. Defaults to false.
	Profile bool
	// Admin moves /metrics and /debug/pprof/ to the handler that Admin returns. Defaults to false.
	Admin bool
	// Log receives errors of connections and requests. Defaults to none.
	Log *slog.Logger
	// Audit receives denials and administrative acts. Defaults to Log.
	Audit *slog.Logger
}

func (c Config) withDefaults() Config {
	if c.Engine.Ready == nil {
		c.Engine.Ready = func(context.Context) error { return nil }
	}
	if c.MaxMessage == 0 {
		c.MaxMessage = 1 << 20
	}
	if c.MaxJSONDepth == 0 {
		c.MaxJSONDepth = 64
	}
	c.Chat.maxDepth = c.MaxJSONDepth
	c.Compression = compressing(c.Compression)
	c.Chat.Room.Compression = c.Compression
	if c.MaxPartitions == 0 {
		c.MaxPartitions = 64
	}
	if c.Budget == nil {
		c.Budget = budget.New(0)
	}
	if c.DrainTimeout == 0 {
		c.DrainTimeout = 3 * time.Second
	}
	c.Auth = c.Auth.withDefaults()
	if c.BodyTimeout == 0 {
		c.BodyTimeout = 30 * time.Second
	}
	if c.Metrics == nil {
		c.Metrics = prometheus.NewRegistry()
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Audit == nil {
		c.Audit = c.Log
	}
	if c.Limits == nil {
		c.Limits = limits.New(limits.Config{Log: c.Log})
	}
	return c
}

// Server is the http.Handler of all endpoints. End it with Shutdown: the HTTP
// server does not close its WebSocket connections.
type Server struct {
	cfg   Config
	mux   *http.ServeMux
	conns *connections
	chats *chatServer // nil if not served
	flood *lanesServer
	// sessions, api and recorder are nil unless All is served.
	sessions *sessions
	api      *api
	// recorder has the last figures of the server, database the state of its database, and worst what waits the longest: for /v1/overview.
	recorder *overview.Recorder
	database databaseLook
	worst    worstLook
	reports  reports
	ingested atomic.Uint64 // messages that /ws/ingest has taken
	// work is the context of store calls by connections. It outlives requests,
	// and ends when Shutdown's time is up.
	work context.Context
	stop context.CancelFunc

	authLog  *limits.Log
	changes  changes
	readyLog *rareLog
	audit    *audit
	limits   *limits.Registry
}

// New returns a Server.
func New(cfg Config) *Server {
	cfg = cfg.withDefaults()
	work, stop := context.WithCancel(context.Background())
	s := &Server{cfg: cfg, mux: http.NewServeMux(), conns: newConnections(cfg), work: work, stop: stop, authLog: limits.NewLog(cfg.Log), limits: cfg.Limits, audit: newAudit(cfg.Audit, cfg.Metrics), readyLog: &rareLog{log: cfg.Log}}
	registerLimits(s.limits, cfg.Metrics)
	s.mux.HandleFunc("GET /healthz", s.healthz)
	s.mux.HandleFunc("GET /health", s.healthz)
	s.mux.HandleFunc("GET /readyz", s.readyz)
	if !cfg.Admin {
		s.handleAdmin(s.mux, func(verb auth.Verb, next http.Handler) http.Handler {
			return s.guarded(s.needing(need{verb, auth.Server, ""}, next))
		})
	}
	if cfg.Only == All || cfg.Only == Ingest {
		s.mux.Handle("/ws/ingest", s.needing(needIngest, http.HandlerFunc(s.ingest)))
	}
	if cfg.Only == All || cfg.Only == Chat {
		s.chats = newChatServer(cfg.Chat, cfg.Engine, work, cfg.Metrics, &rareLog{log: cfg.Log})
		s.chats.audit = s.audit
		s.mux.HandleFunc("/ws/chat", s.chat)
	}
	if cfg.Only == All || cfg.Only == Lanes {
		s.flood = newLanesServer(cfg.Lanes, cfg.Metrics)
		s.mux.Handle("/ws/lanes", s.needing(needBench, http.HandlerFunc(s.lanes)))
	}
	switch cfg.Only {
	case All:
		s.sessions = newSessions(cfg, s.chats, work)
		s.mux.HandleFunc("/ws", s.session)
		s.api = newAPI(s)
		s.mux.Handle("/v1/", s.api)
		s.mux.Handle(clientPath, s.api)
		s.mux.Handle("/console/", s.guarded(console.Handler()))
		s.mux.Handle("GET "+reportPath+"{id}", s.guarded(&s.reports))
		s.recorder = s.recorded()
		go s.recorder.Run(work)
	case Lanes:
		s.mux.Handle("/ws", s.needing(needBench, http.HandlerFunc(s.lanes)))
	case Chat:
		s.mux.HandleFunc("/ws", s.chat)
	case Ingest:
		s.mux.Handle("/ws", s.needing(needIngest, http.HandlerFunc(s.ingest)))
	case Echo:
		echo := s.needing(needBench, http.HandlerFunc(s.echo))
		s.mux.Handle("/ws", echo)
		s.mux.Handle("/ws/echo", echo)
		s.mux.Handle("/{$}", echo) // conformance suites dial the root
	}
	if cfg.Auth.Policy != nil && cfg.Auth.Administration != nil {
		cfg.Auth.Administration.OnChange(s.accessChanged)
	}
	return s
}

// handleAdmin adds what operators read: /metrics, and /debug/pprof/ if Config.Profile is set. protect adds a right, or nothing.
func (s *Server) handleAdmin(mux *http.ServeMux, protect func(auth.Verb, http.Handler) http.Handler) {
	mux.Handle("GET /metrics", protect("metrics", promhttp.HandlerFor(s.cfg.Metrics, promhttp.HandlerOpts{})))
	if !s.cfg.Profile {
		return
	}
	for path, handle := range map[string]http.HandlerFunc{"": pprof.Index, "profile": pprof.Profile, "trace": pprof.Trace} {
		mux.Handle("/debug/pprof/"+path, protect("profile", handle))
	}
}

// Admin returns the handler of /healthz, /readyz, /metrics and /debug/pprof/ for a listener of its own, with Config.Admin. It asks for
// no token: whoever reaches the listener may read them.
func (s *Server) Admin(access *websocket.Access) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", s.healthz)
	mux.HandleFunc("GET /readyz", s.readyz)
	s.handleAdmin(mux, func(_ auth.Verb, next http.Handler) http.Handler { return guard(access, next) })
	return mux
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	nameRequest(w, r)
	if tooManyHeaders(w, r) {
		return
	}
	if s.cfg.Auth.Policy != nil && !isProbe(r.URL.Path) {
		r = s.identify(r)
	}
	s.known(r)
	http.NewResponseController(w).SetWriteDeadline(deadlineOf(r)) // in place of that of an earlier request of the connection
	if !isProbe(r.URL.Path) && !s.isHandshake(r) {
		counted, end, refused := s.limited(w, r)
		if refused {
			return
		}
		defer end()
		r = counted
	}
	s.conns.panics.serveHTTP(w, r, s.mux)
}

// isProbe reports whether everybody may ask that path, at any rate: no token is looked at, since that costs more than the answer.
func isProbe(path string) bool { return path == "/healthz" || path == "/health" || path == "/readyz" }

// shortAnswer is how long a client may take to read an answer that is not part of the API, which sets a time of its own.
const shortAnswer = time.Minute

// deadlineOf is until when the answer to a request has to be taken. Profiles take as long as they are asked to.
func deadlineOf(r *http.Request) time.Time {
	if strings.HasPrefix(r.URL.Path, "/debug/") {
		return time.Time{}
	}
	return time.Now().Add(shortAnswer)
}

// Shutdown rejects new connections, stores and answers all received messages,
// and closes the open connections with code 1001. When ctx ends first, it
// aborts the remaining connections and returns ctx's error.
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

// GiveUp cancels the store calls for which requests and connections wait: each is
// answered with an error, which the client has time to read. Call it during a stop,
// after the stores have abandoned their accepted messages, and before Shutdown's
// ctx ends.
func (s *Server) GiveUp() {
	if s.chats != nil && s.chats.stored != nil {
		s.chats.stored.giveUp()
	}
	s.stop()
}

// EndPolls ends long polls: from now on, requests that wait for messages are
// answered at once with the messages available. A request whose body has not
// arrived gets DrainTimeout. http.Server's Shutdown waits for all of them, so
// pass EndPolls to RegisterOnShutdown.
func (s *Server) EndPolls() {
	if s.api != nil {
		s.api.endPolls()
	}
}

func (s *Server) healthz(w http.ResponseWriter, _ *http.Request) {
	io.WriteString(w, "ok\n")
}

func (s *Server) readyz(w http.ResponseWriter, r *http.Request) {
	err := s.cfg.Engine.Ready(r.Context())
	if s.conns.stopping() {
		err = errStopping
	}
	if err != nil {
		s.readyLog.warn("the server is not ready", "error", err)
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

// accept upgrades the request to a WebSocket and runs serve on it in a separate
// goroutine, so that net/http releases its buffers for the request.
func (s *Server) accept(w http.ResponseWriter, r *http.Request, cfg websocket.Config, serve func(*connection)) {
	caller, why := callerOf(r)
	serving := false
	defer func() {
		if !serving {
			s.failedHandshake(s.client(r, caller))
		}
	}()
	if _, err := url.ParseQuery(r.URL.RawQuery); err != nil {
		http.Error(w, "the query of the URL is malformed", http.StatusBadRequest)
		return
	}
	if s.cfg.Auth.Policy != nil && caller == nil && why != codeUnauthenticated { // without a token, it may come in a message
		s.unauthorized(w, r, why)
		return
	}
	slot, ok := s.conns.reserveConnection()
	if !ok {
		s.refuseStopping(w)
		return
	}
	defer func() {
		if !serving { // also after a panic
			slot.release()
		}
	}()

	if !slot.count(s, w, r, caller) {
		return
	}
	memory := new(socketMemory)
	cfg.MaxMessage, cfg.Access, cfg.Memory = s.cfg.MaxMessage, s.cfg.Access, memory
	var c *connection
	counted := func(next func([]byte)) func([]byte) { // a peer may send control frames in place of messages
		return func(payload []byte) {
			c.pinged(len(payload))
			if next != nil {
				next(payload)
			}
		}
	}
	cfg.OnPing, cfg.OnPong = counted(cfg.OnPing), counted(cfg.OnPong)
	conn, err := websocket.Upgrade(w, r, cfg)
	if err != nil {
		return // answered already
	}
	c = slot.open(conn, func(c *connection) {
		c.identity = identity{policy: s.cfg.Auth.Policy, conn: c, cfg: s.cfg.Auth, log: s.authLog, audit: s.audit, renewals: newRenewalLimit(), changes: &s.changes, at: changesBefore(r)}
		c.identity.caller.Store(caller)
		c.endpoint, c.client = unique.Make(r.URL.Path), unique.Make(clientName(r))
	})
	memory.holder = c.memory
	c.memory.Join(userOrAddress(c.address, caller))
	if caller != nil || s.cfg.Auth.Policy == nil {
		c.meterFor(caller)
	}
	serving = true
	go func() {
		defer slot.release()
		defer c.identity.end()
		c.guard(func() { serve(c) })
		if c.broken.Load() { // usually serve has closed it, unless the panic was in that part
			c.Close(websocket.StatusInternalError, "")
		}
	}()
}
