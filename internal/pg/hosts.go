package pg

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Reasons for which a server that answers is not used.
var (
	// ErrFormerPrimary: another server was promoted, and this one still acts as the primary.
	ErrFormerPrimary = errors.New("pg: a former primary")
	// ErrOtherCluster: the server belongs to another database cluster than the other servers of the address.
	ErrOtherCluster = errors.New("pg: a server of another cluster")
)

// errNotWanted: the server is not what target_session_attrs asks for, for example a standby.
var errNotWanted = errors.New("pg: target_session_attrs asks for another server")

// lostError is the error of reads and writes on a connection that hosts has closed. It is a net.Error.
type lostError struct{ why string }

func (e *lostError) Error() string { return e.why }
func (*lostError) Timeout() bool   { return false }
func (*lostError) Temporary() bool { return true }

// hosts holds what this process knows about the servers of one address, such as host=a,b: which of them answer, and
// which timeline is the newest. All pools of the process with the same address, user and database share it. It fences
// former primaries: their timeline is the fencing token.
//
// While there are connections, a goroutine watches the servers; see watch. Safe for concurrent use.
type hosts struct {
	servers  []*server
	emptied  chan struct{} // signalled when the last connection has ended
	watching sync.Mutex    // held by the watch

	mu      sync.Mutex
	config  *pgx.ConnConfig // the unchanged configuration of the last guard
	log     *slog.Logger    // nil if no pool has one
	id      string          // system identifier, or "" while it is unknown
	newest  uint32          // timeline, or 0
	ask     int             // index of the first statement of identifySQL that the servers accept
	sockets map[*socket]struct{}
	wanted  time.Time // when somebody last tried to connect; zero after a success
	watched bool

	admissions map[string]*admission // by network address
}

// server is one host and port of an address. hosts.mu guards its fields, except conn, which the running question
// uses, or otherwise the watch.
type server struct {
	host string
	port uint16

	asked         atomic.Bool // a question of the watch is under way
	conn          *ownConn
	admission     admission       // of the watch's connections
	addresses     map[string]bool // network addresses of its name that were dialled
	answered      time.Time
	tried         time.Time // when the last question ended, answered or not
	silent        bool      // it does not answer, so connections to it fail at once; the watch still asks it
	refused       error     // why it is not used although it answers, or nil
	loggedRefusal string    // text of refused that was logged last
}

func (s *server) String() string { return fmt.Sprintf("%s:%d", s.host, s.port) }

var (
	hostsMu  sync.Mutex
	allHosts = make(map[string]*hosts)
)

// hostsOf returns the servers of the address that a configuration has.
func hostsOf(cfg *pgx.ConnConfig) *hosts {
	servers := []*server{{host: cfg.Host, port: cfg.Port, addresses: make(map[string]bool), admission: admission{most: maxStartingWatch}}}
	for _, f := range cfg.Fallbacks { // a host may be there twice: with TLS, and without
		if !slices.ContainsFunc(servers, func(s *server) bool { return s.host == f.Host && s.port == f.Port }) {
			servers = append(servers, &server{host: f.Host, port: f.Port, addresses: make(map[string]bool), admission: admission{most: maxStartingWatch}})
		}
	}
	key := fmt.Sprint(servers, cfg.User, "\x00", cfg.Database)
	hostsMu.Lock()
	defer hostsMu.Unlock()
	h := allHosts[key]
	if h == nil {
		h = &hosts{servers: servers, sockets: make(map[*socket]struct{}), admissions: make(map[string]*admission), emptied: make(chan struct{}, 1)}
		allHosts[key] = h
	}
	return h
}

// guard changes a configuration so that it connects only to servers that answer and are not former primaries, and so that
// its connections are closed when a server stops answering or becomes a former primary.
func (h *hosts) guard(cfg *pgx.ConnConfig) {
	given := cfg.Copy()
	h.mu.Lock()
	h.config = given
	h.mu.Unlock()
	if h.several() {
		cfg.ConnectTimeout = min(cfg.ConnectTimeout, hostTimeout)
		if cfg.ConnectTimeout == 0 {
			cfg.ConnectTimeout = hostTimeout
		}
	}
	cfg.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		if err := h.refuseSilent(address); err != nil {
			return nil, err
		}
		conn, err := given.DialFunc(ctx, network, address)
		if err != nil {
			return nil, err
		}
		enableKeepAlive(conn)
		return h.register(conn, address), nil
	}
	cfg.ValidateConnect = func(ctx context.Context, conn *pgconn.PgConn) error {
		if err := h.validate(ctx, conn); err != nil {
			return err
		}
		if given.ValidateConnect != nil {
			if err := given.ValidateConnect(ctx, conn); err != nil {
				return fmt.Errorf("%w: %w", errNotWanted, err)
			}
		}
		h.mu.Lock()
		h.wanted = time.Time{}
		h.mu.Unlock()
		return nil
	}
	h.admit(cfg)
}

// hostTimeout bounds an attempt to connect to one of several hosts.
const hostTimeout = 2 * time.Second

func (h *hosts) several() bool { return len(h.servers) > 1 }

// logTo sets the log for changes of the servers.
func (h *hosts) logTo(log *slog.Logger) {
	if log == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.log = log
}

// tell logs a change of a server. The caller holds mu.
func (h *hosts) tell(level slog.Level, what string, s *server, err error) {
	if h.log == nil {
		return
	}
	attrs := []any{"host", s.String()}
	if err != nil {
		attrs = append(attrs, "error", err)
	}
	h.log.Log(context.Background(), level, what, attrs...)
}

// byAddress returns the server with the network address, or nil. The caller holds mu.
func (h *hosts) byAddress(address string) *server {
	for _, s := range h.servers {
		if _, own := pgconn.NetworkAddress(s.host, s.port); own == address || s.addresses[address] {
			return s
		}
	}
	return nil
}

// silentFor is how long connections to a server that does not answer fail at once (a circuit breaker). Each unanswered
// question of the watch extends it.
const silentFor = 5 * time.Second

// refuseSilent returns an error if the server at that address is known not to answer.
func (h *hosts) refuseSilent(address string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.wanted = time.Now()
	if s := h.byAddress(address); s != nil && s.silent && time.Since(s.tried) < silentFor {
		return &lostError{fmt.Sprintf("pg: %s does not answer", s)}
	}
	return nil
}

// Connect opens a connection outside any pool, with the same checks as those of Open.
func Connect(ctx context.Context, url string) (*pgx.Conn, error) {
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	if cfg.RuntimeParams["application_name"] == "" {
		cfg.RuntimeParams["application_name"] = AppName
	}
	return hostsOf(cfg).connect(ctx, cfg)
}

// HostStats says how many servers of an address are not used now.
type HostStats struct {
	Refused int // former primaries, and servers of other clusters
	Silent  int // servers that do not answer, while another one does
}

// HostsOf returns the HostStats for the address of a pool.
func HostsOf(pool *pgxpool.Pool) HostStats {
	h := hostsOf(pool.Config().ConnConfig)
	h.mu.Lock()
	defer h.mu.Unlock()
	var stats HostStats
	for _, s := range h.servers {
		if s.refused != nil {
			stats.Refused++
		}
		if s.silent {
			stats.Silent++
		}
	}
	return stats
}

// hostNames returns the names of the servers, for error texts.
func (h *hosts) hostNames() string {
	names := make([]string, len(h.servers))
	for i, s := range h.servers {
		names[i] = s.String()
	}
	return strings.Join(names, ", ")
}
