package cli

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidewire/tidewire/internal/cluster"
	"github.com/tidewire/tidewire/internal/gateway"
	"github.com/tidewire/tidewire/internal/relay/natsrelay"
	"github.com/tidewire/tidewire/stream"
)

// clusterFlags make the server a node of a cluster.
type clusterFlags struct {
	Cluster           string   `placeholder:"NAME" help:"Form a cluster with all servers that have the same database and this name: rooms that are not stored then span all of them, and limits of users count on all together. Letters, digits, - and _."`
	ClusterListen     string   `default:":6222" placeholder:"[HOST]:PORT" help:"Address for the other servers of the cluster. The connections are encrypted, and both sides prove that they know the secret of the cluster."`
	ClusterAdvertise  string   `placeholder:"HOST:PORT" help:"Address at which the other servers reach --cluster-listen. Default: an address of this machine, which the log shows."`
	ClusterPeers      []string `placeholder:"HOST:PORT" help:"Addresses of the other servers, if there is no database (--only chat). Needs --cluster-secret-file."`
	ClusterSecretFile string   `placeholder:"FILE" help:"File with the secret of the cluster. It is the same on all servers. Default: the secret is in the database."`
	NATS              string   `name:"nats" placeholder:"URL" help:"Use these NATS servers instead of the one inside this process, which then is not started. Several are separated by commas. tls://… encrypts."`
	NATSCreds         string   `name:"nats-creds" placeholder:"FILE" help:"Credentials file for --nats."`

	clusterTLSFlags
}

var clusterName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// check is a part of Validate.
func (f clusterFlags) check(only string) error {
	switch {
	case f.Cluster == "" && (f.ClusterAdvertise != "" || len(f.ClusterPeers) > 0 || f.ClusterSecretFile != "" || f.NATS != "" || f.NATSCreds != "" || f.clusterTLSFlags.set()):
		return errors.New("--cluster-… and --nats have no effect without --cluster NAME")
	case f.Cluster == "":
		return nil
	case !clusterName.MatchString(f.Cluster):
		return fmt.Errorf("--cluster is %q: want 1 to 64 letters, digits, - and _", f.Cluster)
	case only != "" && only != string(gateway.Chat):
		return fmt.Errorf("--cluster connects rooms, and --only %s has none", only)
	case f.NATS != "" && (f.ClusterAdvertise != "" || len(f.ClusterPeers) > 0 || f.ClusterSecretFile != ""):
		return errors.New("with --nats there is no server inside the process: leave out --cluster-advertise, --cluster-peers and --cluster-secret-file")
	case f.NATS == "" && f.NATSCreds != "":
		return errors.New("--nats-creds is for --nats")
	case len(f.ClusterPeers) > 0 && f.ClusterSecretFile == "":
		return errors.New("--cluster-peers needs --cluster-secret-file")
	}
	addresses := append([]string{f.ClusterListen}, f.ClusterPeers...)
	if f.ClusterAdvertise != "" {
		addresses = append(addresses, f.ClusterAdvertise)
	}
	for _, address := range addresses {
		if _, _, err := net.SplitHostPort(address); err != nil {
			return fmt.Errorf("%q is no address of a cluster: want HOST:PORT: %w", address, err)
		}
	}
	return f.clusterTLSFlags.check(f.NATS)
}

// join makes the server a node of the cluster, if it has to be one, and gives cfg's rooms to it. pool is nil without a database. leave ends
// that; call it after the gateway has ended.
func (c *serveCmd) join(p *process, pool *pgxpool.Pool, cfg *gateway.Config) (leave func(), err error) {
	if c.Cluster == "" {
		return func() {}, nil
	}
	id := rand.Uint64()
	own, files, err := c.clusterCertificates(p)
	if err != nil {
		return nil, err
	}
	relay, err := c.startRelay(p, pool, id, own)
	if err != nil {
		return nil, err
	}
	node, err := cluster.NewNode(id, relay)
	if err != nil {
		relay.Close()
		return nil, err
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(p.ctx))
	var running sync.WaitGroup
	leave = func() {
		stop()
		running.Wait()
		relay.Close()
	}
	node.Observe(c.commonSettings(), observer(p.log))
	directory, err := c.find(ctx, &running, p, pool, relay, node, id)
	if err != nil {
		leave()
		return nil, err
	}
	running.Go(func() { node.Run(ctx) })
	if cfg.Limits != nil {
		cfg.Limits.Share()
		node.Exchange(cluster.Notes{Write: cfg.Limits.Note, Last: cfg.Limits.LastNote, Read: cfg.Limits.Hear})
	}
	if files != nil {
		running.Go(func() { files.Run(ctx) })
	}
	clusterMetrics(cfg.Metrics, node, relay)
	cfg.Chat.Room.Connect = node.Connect
	cfg.Nodes, c.node = nodes{node, c.Cluster, pool, newNodeList(pool), directory}, node
	if pool != nil {
		if c.tail, err = c.tailOf(ctx, node, pool); err != nil {
			leave()
			return nil, err
		}
	}
	return leave, nil
}

// commonSettings returns a hash of the settings that all servers of a cluster need in common.
func (c *serveCmd) commonSettings() uint64 {
	patterns := slices.Sorted(slices.Values(c.StoredRooms))
	sum := sha256.Sum256([]byte(strings.Join(patterns, "\x00")))
	return binary.BigEndian.Uint64(sum[:])
}

func observer(log *slog.Logger) cluster.Observer {
	return cluster.Observer{
		Heard: func(node string) { log.Info("another server of the cluster is heard", "node", node) },
		Lost:  func(node string) { log.Info("another server of the cluster is not heard any more", "node", node) },
		Differs: func(node string) {
			log.Warn("another server of the cluster has other --stored-rooms: members miss chats", "node", node, "do", "Give all servers the same")
		},
	}
}

// tailOf connects the streams of the nodes that use this database.
func (c *serveCmd) tailOf(ctx context.Context, node *cluster.Node, pool *pgxpool.Pool) (stream.Peers, error) {
	secret, err := cluster.Secret(ctx, pool, c.Cluster)
	if err != nil {
		return nil, explainDatabase(err)
	}
	// The secret is random, so its hash names the database, also among clusters that share NATS servers.
	name := sha256.Sum256([]byte("tail " + secret))
	return node.Tail(hex.EncodeToString(name[:8])), nil
}

func (c *serveCmd) startRelay(p *process, pool *pgxpool.Pool, id uint64, own *natsrelay.Certificates) (*natsrelay.Relay, error) {
	cfg := natsrelay.Config{
		Node: cluster.NodeName(id), Cluster: c.Cluster, Listen: c.ClusterListen, Advertise: c.ClusterAdvertise, Certificates: own,
		URL: c.NATS, Creds: c.NATSCreds, CAFile: c.NATSCAFile, CertFile: c.NATSCertFile, KeyFile: c.NATSKeyFile,
		MaxMessage: int(c.MaxMessage) + cluster.MaxOverhead, Log: p.log,
	}
	if c.NATS == "" {
		var err error
		if cfg.Secret, err = c.clusterSecret(p, pool); err != nil {
			return nil, err
		}
	}
	relay, err := natsrelay.Start(cfg)
	switch {
	case errors.Is(err, natsrelay.ErrListen):
		return nil, exit(ExitListen, "%w", err)
	case err != nil:
		return nil, exit(ExitUsage, "%w", err)
	}
	return relay, nil
}

func (c *serveCmd) clusterSecret(p *process, pool *pgxpool.Pool) (string, error) {
	switch {
	case c.ClusterSecretFile != "":
		text, err := os.ReadFile(c.ClusterSecretFile)
		if err != nil {
			return "", exit(ExitUsage, "--cluster-secret-file: %w", err)
		}
		warnOfReaders(p.log, c.ClusterSecretFile)
		secret := strings.TrimSpace(string(text))
		if len(secret) < 16 {
			return "", exit(ExitUsage, "--cluster-secret-file %s: want at least 16 characters, for example of: openssl rand -hex 16", c.ClusterSecretFile)
		}
		return strengthen(secret, c.Cluster), nil
	case pool == nil:
		return "", exit(ExitUsage, "the servers of a cluster have no way to find each other: give --database-url, or --cluster-peers and --cluster-secret-file, or --nats")
	default:
		secret, err := cluster.Secret(p.ctx, pool, c.Cluster)
		return secret, explainDatabase(err)
	}
}

// find finds the other nodes: in the database, whose directory it returns, or in --cluster-peers.
func (c *serveCmd) find(ctx context.Context, running *sync.WaitGroup, p *process, pool *pgxpool.Pool, relay *natsrelay.Relay, node *cluster.Node, id uint64) (*cluster.Directory, error) {
	if pool == nil || len(c.ClusterPeers) > 0 {
		p.log.Info("node of a cluster", "cluster", c.Cluster, "node", cluster.NodeName(id), "address", cmp.Or(relay.Addr(), withoutUsers(c.NATS)), "peers", c.ClusterPeers)
		return nil, relay.SetPeers(c.ClusterPeers)
	}
	own := cluster.Entry{ID: cluster.NodeName(id), Cluster: c.Cluster, Version: version()}
	own.Host, _ = os.Hostname() // only shown
	if c.NATS == "" {
		var err error
		if own.Address, err = c.advertised(relay.Addr()); err != nil {
			return nil, err
		}
	}
	directory := cluster.OpenDirectory(pool, own, p.log)
	discovery, err := cluster.Discover(ctx, directory, relay, node)
	if err != nil {
		return nil, explainDatabase(err)
	}
	p.log.Info("node of a cluster", "cluster", c.Cluster, "node", own.ID, "address", cmp.Or(own.Address, withoutUsers(c.NATS)), "peers", discovery.Peers())
	running.Go(func() { discovery.Run(ctx) })
	return directory, nil
}

// advertised returns the address at which other nodes reach this one.
func (c *serveCmd) advertised(listening string) (string, error) {
	if c.ClusterAdvertise != "" {
		return c.ClusterAdvertise, nil
	}
	host, port, err := net.SplitHostPort(listening)
	if err != nil {
		return "", err
	}
	if ip := net.ParseIP(host); ip != nil && !ip.IsUnspecified() {
		return listening, nil
	}
	if host = ownAddress(); host == "" {
		return "", exit(ExitUsage, "this machine has no address for other machines: give --cluster-advertise HOST:%s", port)
	}
	return net.JoinHostPort(host, port), nil
}

// ownAddress returns an address of this machine that other machines may reach, IPv4 first, or "".
func ownAddress() (found string) {
	addresses, _ := net.InterfaceAddrs()
	for _, a := range addresses {
		ip, ok := a.(*net.IPNet)
		if !ok || !ip.IP.IsGlobalUnicast() {
			continue
		}
		if ip.IP.To4() != nil {
			return ip.IP.String()
		}
		found = cmp.Or(found, ip.IP.String())
	}
	return found
}

func clusterMetrics(metrics prometheus.Registerer, node *cluster.Node, relay *natsrelay.Relay) {
	metrics.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "tidewire_cluster_peers", Help: "Other nodes of the cluster that are heard."},
			func() float64 { return float64(node.Stats().Peers) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "tidewire_cluster_missed_total", Help: "Chats of other nodes that did not reach this one."},
			func() float64 { return float64(node.Stats().Missed) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "tidewire_cluster_malformed_total", Help: "Messages of other nodes that could not be decoded."},
			func() float64 { return float64(node.Stats().Malformed) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "tidewire_cluster_overflow_total", Help: "Times at which messages of other nodes came faster than this one handles them, and were lost."},
			func() float64 { return float64(relay.Lost()) }))
}
