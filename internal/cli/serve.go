package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/tidewire/tidewire/internal/budget"
	"github.com/tidewire/tidewire/internal/cluster"
	"github.com/tidewire/tidewire/internal/gateway"
	"github.com/tidewire/tidewire/internal/ingest"
	"github.com/tidewire/tidewire/internal/pg"
	"github.com/tidewire/tidewire/internal/room"
	"github.com/tidewire/tidewire/internal/serve"
	"github.com/tidewire/tidewire/stream"
	"github.com/tidewire/tidewire/websocket"
)

// serveCmd runs the server.
type serveCmd struct {
	Config      string  `placeholder:"FILE" help:"Read settings from this TOML file: a key for each flag, without the dashes. Default: TIDEWIRE_CONFIG. A flag overrides its environment variable (TIDEWIRE_MAX_MEMORY for --max-memory), and the variable overrides the file. With --only lanes: the file of the lanes benchmark."`
	Only        string  `enum:",ingest,chat,lanes,echo" default:"" placeholder:"ENDPOINT" help:"Serve only one endpoint, also at /ws: ingest, chat, lanes or echo."`
	Host        string  `default:"localhost" help:"Address to listen on; localhost means both IPv4 and IPv6."`
	Port        *int    `placeholder:"8080" help:"Port to listen on; 0 chooses a free port. Default: 8080."`
	AdminListen string  `placeholder:"[HOST:]PORT" help:"Serve /metrics and /debug/pprof/ at this address alone, without tokens, and not at --port. HOST is localhost unless given. Default: they are served at --port; in closed mode they need a right there."`
	Duration    seconds `default:"0" help:"Stop after this time; 0 runs until stopped."`

	accessFlags
	authFlags
	tlsFlags
	limitFlags
	clusterFlags
	ingestFlags
	chatFlags
	lanesFlags
	Recreate bool `help:"With --only ingest: drop the messages table with all its rows and create it again."`
	databaseFlags
	ReadURL string `name:"read-url" placeholder:"URL" help:"URL of a standby of the PostgreSQL in --database-url. The server reads events and older messages of streams from the standby, if the standby has already received them. It reads everything else from the primary. Default: DATABASE_READ_URL, or none."`
	Migrate bool   `default:"true" negatable:"" help:"Bring the database's schema up to date. Without it, a schema of another version is refused."`

	PresenceStream string `placeholder:"NAME" help:"Write into this stream who connects to /ws and /ws/chat, and who joins which room. It is created if it does not exist. Default: none."`

	Results string `default:"results" placeholder:"DIR" help:"Folder of the results of benchmarks, which the console shows. Benchmarks that it starts write there, too. By default it is where tidewire bench writes, below the working directory."`

	MaxMemory       memory  `default:"50%" placeholder:"SIZE|SHARE" help:"Memory that this process may use: bytes, or a share of the memory of the machine or its control group."`
	MaxMessage      bytes   `default:"1MiB" help:"Largest message that a client may send. At most about 9 % of --max-memory."`
	Compress        bool    `help:"Accept compression of WebSocket messages (permessage-deflate) on /ws and /ws/chat, for clients that offer it, such as browsers. It saves bytes and costs CPU time. Clients with a token can use it once they have sent the token."`
	AuditLog        string  `placeholder:"FILE" help:"Append denials and administrative acts to this file, one JSON object in each line. Default: the log of the server."`
	Drain           seconds `default:"0" help:"When the server is told to stop, close its WebSockets one after another over this time, so that their clients do not all connect to another server at once. The stop begins after that."`
	ShutdownTimeout seconds `default:"30s" help:"Total time that a stop may take. Requests and connections that have not ended by then are aborted."`
	IdleTimeout     seconds `default:"2m" help:"How long an HTTP connection may stay open between two requests; load balancers keep theirs for a minute or less."`
	Profile         bool    `help:"Serve net/http/pprof under /debug/pprof/."`

	stop   *serve.Stop
	memory int64                 // of the process, in bytes
	renew  func(context.Context) // looks after the certificates; nil without TLS
	node   *cluster.Node         // this server in a cluster; nil without one
	tail   stream.Peers          // the streams of the other servers; nil without a cluster
	reload *reload               // looks after the keys and rules; nil if there is nothing to read
}

// ingestFlags are the settings of the ingest strategies.
type ingestFlags struct {
	Table            string  `default:"messages" placeholder:"NAME" help:"Table that /ws/ingest fills: NAME or SCHEMA.NAME. The server creates it if it serves ingest."`
	Mode             string  `default:"auto" help:"How messages are written: naive, buffered, bulk, copy or auto."`
	Workers          int     `default:"4" help:"Number of database connections of the modes buffered and bulk."`
	Batch            int     `placeholder:"N" help:"Maximum number of rows in one write. Default: 5000 in bulk, 50000 in copy and auto."`
	Flush            seconds `default:"300ms" help:"How long the mode bulk collects rows for a write."`
	MaxInflightBytes bytes   `default:"64MiB" help:"Memory for messages that are not committed. When it is full, the server does not read from sockets."`
}

// chatFlags are the settings of the chat endpoint.
type chatFlags struct {
	RateLimit    float64 `default:"10" help:"Chats a second that one connection may send."`
	RateBurst    float64 `default:"10" help:"Chats that one connection may send at once."`
	PingInterval seconds `default:"30s" help:"How often the chat endpoint sends a JSON ping."`
	PongTimeout  seconds `default:"60s" help:"The chat endpoint closes a connection that has been silent for this time."`
	MaxLagBytes  bytes   `default:"1MiB" help:"How many bytes a member of a room may lag before it skips messages."`
	MaxLagAge    seconds `default:"5s" help:"How long the socket of a member may accept no data before the member skips messages."`

	StoredRooms []string `placeholder:"PATTERN" help:"Rooms whose chats are stored in PostgreSQL, by name or pattern ('support-*'). Members get earlier chats, and an answered chat is committed."`

	RoomHistory      lifetime `placeholder:"TIME" help:"Delete stored chats that are older than this, such as 90d or 12h. It holds for all servers with this database, until a server starts with another one. Default: what was set last; at first, everything is kept."`
	RoomHistoryCount int      `placeholder:"N" help:"Show only the last N chats of each stored room, at most 10000. Those before stay in the database until one of the two other flags deletes them. It holds for this server: give all servers the same."`
	RoomHistoryBytes bytes    `placeholder:"SIZE" help:"Delete the oldest stored chats when all stored rooms together are larger than this on disk, such as 10GB. With one of the two flags, the other one is unlimited unless it is given."`
}

func (f chatFlags) chat(maxRooms int) gateway.ChatConfig {
	return gateway.ChatConfig{
		MaxRooms: maxRooms, RateLimit: f.RateLimit, RateBurst: f.RateBurst,
		PingInterval: time.Duration(f.PingInterval), PongTimeout: time.Duration(f.PongTimeout),
		Room:        room.Config{MaxLagBytes: int64(f.MaxLagBytes), MaxLagAge: time.Duration(f.MaxLagAge)},
		StoredRooms: f.StoredRooms, RoomChats: f.RoomHistoryCount,
	}
}

func (f ingestFlags) config(p *process) ingest.Config {
	return ingest.Config{
		Mode: ingest.Mode(f.Mode), Table: f.Table, Workers: f.Workers, Batch: f.Batch, Flush: time.Duration(f.Flush),
		MaxInflightBytes: int(f.MaxInflightBytes), Log: p.log,
	}
}

// Validate is called by kong.
func (c *serveCmd) Validate() error {
	if _, err := ingest.ParseMode(c.Mode); err != nil {
		return err
	}
	if _, err := pg.ParseTable(c.Table); err != nil {
		return fmt.Errorf("--table: %w", err)
	}
	if c.Recreate && c.Only != "ingest" {
		return errors.New("--recreate drops the messages table: it goes with --only ingest")
	}
	if c.Port != nil && (*c.Port < 0 || *c.Port > 65535) {
		return fmt.Errorf("--port is %d: want 0 to 65535", *c.Port)
	}
	if c.MaxPartitions < 1 || c.MaxPartitions > stream.MaxPartitions {
		return fmt.Errorf("--max-partitions is %d: want 1 to %d", c.MaxPartitions, stream.MaxPartitions)
	}
	if c.Drain < 0 {
		return errors.New("--drain: want 0 or more")
	}
	if err := c.limitFlags.check(); err != nil {
		return err
	}
	if c.IdleTimeout <= 0 {
		return errors.New("--idle-timeout: want more than 0")
	}
	if c.RateLimit <= 0 || c.RateBurst < 1 {
		return errors.New("--rate-limit: want more than 0, and --rate-burst at least 1")
	}
	if (c.RoomHistory > 0 || c.RoomHistoryBytes > 0) && len(c.StoredRooms) == 0 {
		return errors.New("--room-history and --room-history-bytes have no effect without --stored-rooms")
	}
	if c.RoomHistoryCount != 0 && len(c.StoredRooms) == 0 {
		return errors.New("--room-history-count has no effect without --stored-rooms")
	}
	if c.RoomHistoryCount < 0 || c.RoomHistoryCount > 10_000 {
		return errors.New("--room-history-count: want 1 to 10000, or 0 for all chats")
	}
	for _, pattern := range c.StoredRooms {
		if _, err := path.Match(pattern, ""); err != nil {
			return fmt.Errorf("--stored-rooms %s: not a pattern: want * ? and [a-z], with \\ before those that are meant themselves", pattern)
		}
	}
	if c.MaxMessage < 1 {
		return errors.New("--max-message: want at least 1 byte")
	}
	if err := c.clusterFlags.check(c.Only); err != nil {
		return err
	}
	if err := c.checkPresence(); err != nil {
		return err
	}
	return c.tlsFlags.check()
}

// Run is called by kong.
func (c *serveCmd) Run(p *process) error {
	if err := c.limitMemory(p); err != nil {
		return err
	}
	p.settings.warnOfReaders(p.log)
	if c.Duration > 0 {
		var cancel context.CancelFunc
		p.ctx, cancel = context.WithTimeout(p.ctx, time.Duration(c.Duration))
		defer cancel()
	}
	c.stop = serve.NewStop(p.ctx, time.Duration(c.ShutdownTimeout), time.Duration(c.Drain))
	return c.stop.Run(func() error { return c.serve(p) })
}

// limitMemory sets the memory limit of the garbage collector. Near the limit the
// collector works harder, instead of letting the heap double first.
func (c *serveCmd) limitMemory(p *process) error {
	machine, source, err := budget.MachineMemory()
	if err != nil && c.MaxMemory.size == 0 {
		return exit(ExitUsage, "the machine's memory is unknown: give --max-memory in bytes, such as 1GiB: %w", err)
	}
	c.memory = c.MaxMemory.of(machine)
	if err := c.checkMessage(); err != nil {
		return err
	}
	debug.SetMemoryLimit(budget.SoftLimit(c.memory))
	budget.GatherGarbage()
	p.log.Info("memory", "max_bytes", c.memory, "machine_bytes", machine, "source", source)
	return nil
}

// messageShare limits one message to a quarter of the memory for clients: an HTTP
// request reserves twice its body, and there are other clients.
const messageShare = 4

// checkMessage rejects a --max-message that would not fit into the memory for clients.
func (c *serveCmd) checkMessage() error {
	clients := budget.ClientShare(c.memory)
	if most := clients / messageShare; int64(c.MaxMessage) > most {
		return exit(ExitUsage, "--max-message is %d bytes: want at most %d, a quarter of the %d bytes that clients may hold with --max-memory at %d; lower --max-message or raise --max-memory",
			c.MaxMessage, most, clients, c.memory)
	}
	return nil
}

// serve listens, serves, and stops.
func (c *serveCmd) serve(p *process) error {
	lanesFile := ""
	if c.Only == "lanes" {
		lanesFile = c.Config
	}
	lanes, err := c.lanesFlags.load(lanesFile)
	if err != nil {
		return err
	}
	port := lanes.Port
	if c.Port != nil {
		port = *c.Port
	}
	listeners, err := listen(c.Host, port, settingNames{"--host", "--port"})
	if err != nil {
		return err
	}
	defer func() {
		for _, l := range listeners {
			l.Close()
		}
	}()
	admin, err := c.listenAdmin(p)
	if err != nil {
		return err
	}
	defer func() {
		for _, l := range admin {
			l.Close()
		}
	}()
	registry := c.limits(c.closed(), c.MaxMessage, p)
	for i, l := range listeners {
		listeners[i] = registry.Listener(l) // before TLS: sockets that do not finish the handshake count
	}
	access, err := c.access(listeners, c.TLSHost)
	if err != nil {
		return err
	}
	var auths *authDatabase
	if c.storing(p) {
		auths = new(authDatabase)
	}
	auth, err := c.auth(p, onLoopback(listeners), auths)
	if err != nil {
		return err
	}
	listeners, renew, err := c.secure(p, listeners)
	if err != nil {
		return err
	}
	c.renew = renew
	c.reload = newReload(p, c, auths, auth.Policy)
	metrics := prometheus.NewRegistry()
	metrics.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	cfg := gateway.Config{
		Version: version(), Only: gateway.Endpoint(c.Only), MaxMessage: int(c.MaxMessage), MaxPartitions: c.MaxPartitions, Metrics: metrics, Profile: c.Profile, Chat: c.chat(c.MaxRooms), Lanes: c.lanes(lanes), Access: access, Auth: auth,
		Limits: registry, MaxJSONDepth: c.MaxJSONDepth, Sessions: gateway.SessionConfig{MaxSubscriptions: c.MaxSubscriptions},
		Budget: budget.New(budget.ClientShare(c.memory)), Log: p.log,
	}
	if cfg.Only == gateway.All {
		benches, err := c.benches(p, auth.Policy != nil || onLoopback(listeners))
		if err != nil {
			return err
		}
		defer benches.Close()
		cfg.Bench = benches
	}
	if c.Compress {
		cfg.Compression = &websocket.Compression{}
	}
	if c.AuditLog != "" {
		file, err := os.OpenFile(c.AuditLog, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			return exit(ExitUsage, "--audit-log: %w: name a file in a directory which this user can write to", err)
		}
		defer file.Close()
		cfg.Audit = slog.New(slog.NewJSONHandler(file, nil))
	}
	out := serve.Config{
		Gateway: cfg, Listeners: listeners, Admin: admin,
		IdleTimeout: time.Duration(c.IdleTimeout), Drain: time.Duration(c.Drain), MaxHeaderBytes: int(c.MaxHeaderBytes),
	}
	if out.AdminAccess, err = c.access(admin, nil); err != nil {
		return err
	}
	if auths == nil {
		leave, err := c.join(p, nil, &out.Gateway)
		if err != nil {
			return err
		}
		defer leave()
		return c.run(p, out)
	}
	return c.withDatabase(p, out, auths)
}

// storing reports whether what is served needs a database. The servers of a cluster find each other in one, if it is given.
func (c *serveCmd) storing(p *process) bool {
	switch c.Only {
	case "echo", "lanes":
		return false
	case "chat":
		_, given := c.given(p)
		return len(c.StoredRooms) > 0 || c.Cluster != "" && given && len(c.ClusterPeers) == 0 && c.NATS == ""
	}
	return true
}

// run serves until the process is to stop.
func (c *serveCmd) run(p *process, s serve.Config) error {
	ctx, cancel := context.WithCancel(p.ctx)
	defer cancel()
	s.Listening = func() {
		port := strconv.Itoa(s.Listeners[0].Addr().(*net.TCPAddr).Port)
		address, scheme := net.JoinHostPort(c.Host, port), "http"
		if c.renew != nil {
			address, scheme = "https://"+address, "https"
			go c.renew(ctx)
		}
		fmt.Fprintln(p.Out, "listening on", address)
		if s.Gateway.Only == gateway.All {
			fmt.Fprintf(p.Out, "console at %s://%s/console/\n", scheme, net.JoinHostPort(browsed(c.Host), port))
		}
		if len(s.Admin) > 0 {
			fmt.Fprintln(p.Out, "metrics on", s.Admin[0].Addr())
		}
	}
	s.Background = func(ctx context.Context, edge *gateway.Server) {
		if c.node != nil {
			c.node.Reply(edge.Answer)
		}
		if c.reload != nil {
			c.reload.run(ctx, edge)
		}
	}
	if s.Gateway.Only == gateway.Chat {
		s.Stopped = func(server *gateway.Server) error { return server.WriteChatStats(p.Out) }
	}
	return serve.Run(p.ctx, c.stop, s)
}

// browsed returns the name at which a browser of this machine reaches a server that listens on a host.
func browsed(host string) string {
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		return "localhost"
	}
	return host
}
