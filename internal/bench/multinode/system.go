package multinode

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidewire/tidewire/internal/embedpg"
	"github.com/tidewire/tidewire/internal/fault"
)

// system is PostgreSQL and the nodes on it.
type system struct {
	postgres *embedpg.Server
	forward  *forwarder // nil without a network
	net      *fault.Net // nil: all nodes are on loopback
	nodes    []*node
}

// storedRoom is the name of the room whose chats are stored, and liveRoom that of the other one.
const (
	storedRoom = "stored"
	liveRoom   = "live"
)

// nodePort is the port of a node with a network of its own.
const nodePort = "8080"

// slowRate is the rate of Slow, in bits a second.
const slowRate = 1_000_000

// startPostgres starts PostgreSQL with its data in a directory.
func (s *system) startPostgres(ctx context.Context, cfg embedpg.Config, dir string) (err error) {
	cfg.DataDir = filepath.Join(dir, "postgres")
	s.postgres, err = embedpg.Start(ctx, cfg)
	return err
}

// connect makes a network for the nodes, and opens PostgreSQL for it.
func (s *system) connect(nodes int) (err error) {
	cfg, err := pgx.ParseConfig(s.postgres.URL())
	if err != nil {
		return err
	}
	if s.forward, err = forward(filepath.Join(cfg.Host, fmt.Sprintf(".s.PGSQL.%d", cfg.Port))); err != nil {
		return err
	}
	s.net, err = fault.NewNet(nodes)
	return err
}

// addNode starts one more node, with its log in a directory.
func (s *system) addNode(ctx context.Context, program, dir string) (err error) {
	n := &node{index: len(s.nodes), program: program, command: exec.Command}
	if n.log, err = os.Create(filepath.Join(dir, fmt.Sprintf("node-%d.log", n.index+1))); err != nil {
		return err
	}
	s.nodes = append(s.nodes, n)
	database, where := s.postgres.URL(), []string{"--port", "0", "--cluster-listen", "127.0.0.1:0"}
	if s.net != nil {
		if database, where, err = s.place(n); err != nil {
			return err
		}
	}
	// Members do not lag, so each gap that they are told of is between nodes.
	n.args = append(where, "--database-url", database, "--cluster", "bench", "--stored-rooms", storedRoom,
		"--rate-limit", "1e6", "--rate-burst", "1e6", "--max-lag-bytes", "64MiB", "--max-lag-age", "1h")
	return n.start(ctx)
}

// place gives a node a place in the network, and a proxy to PostgreSQL. It returns the database's URL and the node's flags.
func (s *system) place(n *node) (database string, flags []string, err error) {
	if n.proxy, err = fault.NewProxyOn(net.JoinHostPort(s.net.Addr(fault.Host).String(), "0"), s.forward.addr()); err != nil {
		return "", nil, err
	}
	n.command = func(name string, args ...string) *exec.Cmd { return s.net.Command(n.index, name, args...) }
	host := s.net.Addr(n.index).String()
	flags = []string{"--open", "--host", host, "--port", nodePort, "--cluster-listen", host + ":6222", "--cluster-advertise", host + ":6222"}
	database, err = through(s.postgres.URL(), n.proxy.Addr())
	return database, flags, err
}

// through returns the database's URL with another host and port.
func through(database, address string) (string, error) {
	cfg, err := pgx.ParseConfig(database)
	if err != nil {
		return "", err
	}
	u := url.URL{Scheme: "postgres", User: url.User(cfg.User), Host: address, Path: cfg.Database, RawQuery: "sslmode=disable"}
	return u.String(), nil
}

// inflict causes a fault.
func (s *system) inflict(f step) error {
	n := s.nodes[f.node]
	switch f.fault {
	case Kill:
		n.kill()
	case Freeze:
		return n.process().Stop()
	case Cut:
		return s.net.Cut(f.node, f.other)
	case CutOneWay:
		return s.net.CutOneWay(f.node, f.other)
	case Slow:
		return s.net.Rate(f.node, slowRate)
	case CutDatabase:
		n.proxy.Stall()
	}
	return nil
}

// repair ends a fault.
func (s *system) repair(ctx context.Context, f step) error {
	n := s.nodes[f.node]
	switch f.fault {
	case Kill:
		return n.start(ctx)
	case Freeze:
		return n.process().Continue()
	case Cut, CutOneWay:
		return s.net.Heal(f.node, f.other)
	case Slow:
		return s.net.Rate(f.node, 0)
	case CutDatabase:
		n.proxy.Resume()
	}
	return nil
}

// alive fails if a node has ended by itself.
func (s *system) alive() (err error) {
	for _, n := range s.nodes {
		err = errors.Join(err, n.alive())
	}
	return err
}

// stopNodes stops the nodes. What was repaired before, they can stop within the time.
func (s *system) stopNodes(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for _, n := range s.nodes {
		err = errors.Join(err, n.stop(ctx), n.log.Close())
		if n.proxy != nil {
			err = errors.Join(err, n.proxy.Close())
		}
	}
	s.nodes = nil
	return err
}

// close stops everything.
func (s *system) close(ctx context.Context) (err error) {
	err = s.stopNodes(ctx)
	if s.net != nil {
		err = errors.Join(err, s.net.Close())
	}
	if s.forward != nil {
		err = errors.Join(err, s.forward.close())
	}
	if s.postgres != nil {
		err = errors.Join(err, s.postgres.Stop(ctx))
	}
	return err
}

// describe returns what a fault hits.
func (f step) describe() string {
	where := fmt.Sprintf("node %d", f.node+1)
	if f.fault == Cut || f.fault == CutOneWay {
		where += fmt.Sprintf(" to node %d", f.other+1)
	}
	return strings.Join([]string{string(f.fault), where, f.length.Round(10 * time.Millisecond).String()}, ", ")
}
