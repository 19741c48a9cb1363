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

// Why a server that answers is not used.
var (
	// ErrFormerPrimary: another server was promoted in its place, and it has not noticed.
	ErrFormerPrimary = errors.New("pg: a former primary")
	// ErrOtherCluster: its data are not those of the other servers of the address.
	ErrOtherCluster = errors.New("pg: a server of another cluster")
)

// lostError ends what is under way on a connection that hosts has closed. It is a net.Error.
type lostError struct{ why string }

func (e *lostError) Error() string { return e.why }
func (*lostError) Timeout() bool   { return false }
func (*lostError) Temporary() bool { return true }

// hosts are the servers of one address, such as host=a,b, as this process knows them: which of them answer, and
// which timeline is the newest. All pools of the process with that address, user and database have it in common.
//
// While it has connections, a goroutine watches them; see watch. Safe for concurrent use.
type hosts struct {
	servers  []*server
	emptied  chan struct{} // told that the last connection has ended
	watching sync.Mutex    // held by the watch

	mu      sync.Mutex
	config  *pgx.ConnConfig // the last one that somebody has connected with, as it was given
	log     *slog.Logger    // nil where nobody has given one
	id      string          // system identifier, or "" while it is unknown
	newest  uint32          // timeline, or 0
	ask     int             // which of identifySQL the servers answer
	sockets map[*socket]struct{}
	wanted  time.Time // when somebody last tried to connect; zero after a success
	watched bool
}

// server is one host and port of an address. Its fields belong to hosts.mu, but for conn, which belongs to the
// question under way, or else to the watch.
type server struct {
	host string
	port uint16

	asked     atomic.Bool // a question of the watch is under way
	conn      *ownConn
	addresses map[string]bool // those that its name has, as far as they were dialled
	answered  time.Time
	tried     time.Time // when the last question ended, answered or not
	silent    bool      // it is not tried, as long as the watch goes on to try it
	refused   error     // why it is not used though it answers, or nil
	told      string    // of refused, in the log
}

func (s *server) String() string { return fmt.Sprintf("%s:%d", s.host, s.port) }

var (
	hostsMu  sync.Mutex
	allHosts = make(map[string]*hosts)
)

// hostsOf returns the servers of the address that a configuration has.
func hostsOf(cfg *pgx.ConnConfig) *hosts {
	servers := []*server{{host: cfg.Host, port: cfg.Port, addresses: make(map[string]bool)}}
	for _, f := range cfg.Fallbacks { // a host may be there twice: with TLS, and without
		if !slices.ContainsFunc(servers, func(s *server) bool { return s.host == f.Host && s.port == f.Port }) {
			servers = append(servers, &server{host: f.Host, port: f.Port, addresses: make(map[string]bool)})
		}
	}
	key := fmt.Sprint(servers, cfg.User, "\x00", cfg.Database)
	hostsMu.Lock()
	defer hostsMu.Unlock()
	h := allHosts[key]
	if h == nil {
		h = &hosts{servers: servers, sockets: make(map[*socket]struct{}), emptied: make(chan struct{}, 1)}
		allHosts[key] = h
	}
	return h
}

// guard has the connections of a configuration be made to servers that answer and are no former primaries, and be
// closed when that is no longer so.
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
		noticeDeath(conn)
		return h.register(conn, address), nil
	}
	cfg.ValidateConnect = func(ctx context.Context, conn *pgconn.PgConn) error {
		if err := h.validate(ctx, conn); err != nil {
			return err
		}
		if given.ValidateConnect != nil {
			if err := given.ValidateConnect(ctx, conn); err != nil {
				return err
			}
		}
		h.mu.Lock()
		h.wanted = time.Time{}
		h.mu.Unlock()
		return nil
	}
}

// hostTimeout bounds an attempt to connect to one of several hosts.
const hostTimeout = 2 * time.Second

func (h *hosts) several() bool { return len(h.servers) > 1 }

// logTo has changes be told there.
func (h *hosts) logTo(log *slog.Logger) {
	if log == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.log = log
}

// tell logs once what has changed. The caller holds mu.
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

// byAddress returns the server that has it, or nil. The caller holds mu.
func (h *hosts) byAddress(address string) *server {
	for _, s := range h.servers {
		if _, own := pgconn.NetworkAddress(s.host, s.port); own == address || s.addresses[address] {
			return s
		}
	}
	return nil
}

// silentFor is for how long a server that does not answer is not tried, unless the watch finds again that it does not.
const silentFor = 5 * time.Second

// refuseSilent returns an error if nobody answers at that address.
func (h *hosts) refuseSilent(address string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.wanted = time.Now()
	if s := h.byAddress(address); s != nil && s.silent && time.Since(s.tried) < silentFor {
		return &lostError{fmt.Sprintf("pg: %s does not answer", s)}
	}
	return nil
}

// Connect opens a connection beside every pool, as Open does those of a pool.
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
	Silent  int // they do not answer, while another one does
}

// HostsOf tells about the servers of a pool's address.
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

// hostNames are the servers' names, for a text.
func (h *hosts) hostNames() string {
	names := make([]string, len(h.servers))
	for i, s := range h.servers {
		names[i] = s.String()
	}
	return strings.Join(names, ", ")
}
