package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/engine/postgres"
	"github.com/tidewire/tidewire/internal/gateway"
	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/migrate"
)

// groupLease is the lease of members in tests.
const groupLease = 4 * time.Second

var migrated = pgtest.NewTemplate("migrated", func(ctx context.Context, pool *pgxpool.Pool) error {
	_, err := migrate.Up(ctx, pool)
	return err
})

// database is a server on PostgreSQL.
type database struct {
	addr    string
	engine  engine.Engine
	cutting *cutting
}

// serveDatabase serves a database. change may change the configuration of the server.
func serveDatabase(t *testing.T, db pgtest.DB, change func(*gateway.Config)) database {
	t.Helper()
	s := database{cutting: &cutting{}}
	pool := s.cutting.pool(t, db.URL)
	e, err := postgres.Open(t.Context(), postgres.Config{
		MaxMessage: largestRead,
		Pool:       pool, URL: db.URL, Stores: true, GroupLease: groupLease, Metrics: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	e.Run(context.Background())
	t.Cleanup(func() { e.Stop(context.Background()) })
	s.engine = e.Serves()
	cfg := gateway.Config{Engine: s.engine}
	if change != nil {
		change(&cfg)
	}
	_, s.addr = serve(t, cfg)
	return s
}

// make makes a stream, with partitions if there are any.
func (s database) make(t *testing.T, name string, partitions int) {
	t.Helper()
	if _, err := s.engine.Streams.Create(t.Context(), name, &engine.StreamOptions{Partitions: partitions}); err != nil {
		t.Fatal(err)
	}
}

// cutting lets a test cut the connections to PostgreSQL.
type cutting struct {
	mu    sync.Mutex
	isCut bool
	open  map[net.Conn]bool
}

func (c *cutting) pool(t *testing.T, url string) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	dial := cfg.ConnConfig.DialFunc
	cfg.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.isCut {
			conn.Close()
			return nil, errors.New("cut by the test")
		}
		if c.open == nil {
			c.open = make(map[net.Conn]bool)
		}
		c.open[conn] = true
		return conn, nil
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// cut cuts all connections, and refuses new ones until mend.
func (c *cutting) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.isCut = true
	for conn := range c.open {
		conn.Close()
	}
	clear(c.open)
}

func (c *cutting) mend() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.isCut = false
}

// pushed is what a server sends to a member.
type pushed struct {
	Type, Stream, Subscription, Code, Key, Payload string
	ID                                             int
	Partition                                      *int
	Partitions                                     []int
	Positions                                      []int64
	Position, Oldest                               int64
}

func (p pushed) partition() int {
	if p.Partition == nil {
		return -1
	}
	return *p.Partition
}

// at is a position in a partition.
type at struct {
	partition int
	position  int64
}

// crew is what all members of a test have seen.
type crew struct {
	mu       sync.Mutex
	payloads map[string]int
	owners   map[int]string // by partition
}

// shares is a member of a group.
type shares struct {
	*wire
	name             string
	crew             *crew
	owned            map[int]int64 // the positions after which the next message comes, by partition
	asked            int           // commits
	answered, fenced int           // of these
	got              []at
}

// joins connects as a member of group g of stream s. more are further fields.
func (c *crew) joins(t *testing.T, name string, conn *wire, more string) *shares {
	t.Helper()
	m := &shares{wire: conn, name: name, crew: c, owned: make(map[int]int64)}
	conn.ask(`{"type":"subscribe","id":1,"stream":"s","group":"g","share":true`+more+`}`, `{"type":"ok","id":1}`)
	return m
}

// step reads one message, and checks it. Messages are committed if that is asked for.
func (m *shares) step(commit bool) pushed {
	m.t.Helper()
	var p pushed
	line := m.next()
	if err := json.Unmarshal([]byte(line), &p); err != nil {
		m.t.Fatalf("%s: %v", line, err)
	}
	m.crew.mu.Lock()
	defer m.crew.mu.Unlock()
	switch p.Type {
	case "assigned":
		for i, partition := range p.Partitions {
			if _, twice := m.owned[partition]; twice {
				m.t.Fatalf("%s: %s twice", m.name, line)
			}
			m.owned[partition] = p.Positions[i]
			m.crew.owners[partition] = m.name
		}
	case "revoked":
		for _, partition := range p.Partitions {
			if _, owned := m.owned[partition]; !owned {
				m.t.Fatalf("%s: %s, and does not own it", m.name, line)
			}
			delete(m.owned, partition)
		}
	case "message", "position":
		after, owned := m.owned[p.partition()]
		if !owned || p.Position <= after || p.Stream != "s" || p.Subscription != "s" {
			m.t.Fatalf("%s: %s after %d, owned %v", m.name, line, after, owned)
		}
		m.owned[p.partition()] = p.Position
		if p.Type == "message" {
			m.crew.payloads[p.Payload]++
			m.got = append(m.got, at{p.partition(), p.Position})
		}
		if commit {
			m.commit(p.partition(), p.Position)
		}
	case "ok":
		m.answered++
	case "error":
		m.answered++
		if p.Code != "fenced" {
			m.t.Fatalf("%s: %s", m.name, line)
		}
		m.fenced++
	}
	return p
}

// commit sends a commit. Its answer comes with the messages.
func (m *shares) commit(partition int, position int64) {
	m.t.Helper()
	m.asked++
	send(m.t, m.Conn, fmt.Sprintf(`{"type":"commit","id":%d,"stream":"s","group":"g","partition":%d,"position":%d}`, 1000+m.asked, partition, position))
}

// until reads and commits until something is true.
func (m *shares) until(commit bool, is func() bool) {
	m.t.Helper()
	for !is() {
		m.step(commit)
	}
}

// await reads until the message that it wants has come, and returns that.
func (m *shares) await(wants func(pushed) bool) pushed {
	m.t.Helper()
	for {
		if p := m.step(false); wants(p) {
			return p
		}
	}
}

// ends reads until the subscription ends with an error.
func (m *shares) ends(code string) {
	m.t.Helper()
	for {
		var p pushed
		line := m.next()
		if err := json.Unmarshal([]byte(line), &p); err != nil {
			m.t.Fatalf("%s: %v", line, err)
		}
		if p.Type == "error" {
			if p.Code != code || p.Subscription != "s" {
				m.t.Fatalf("%s, want %s", line, code)
			}
			return
		}
	}
}

// ok waits for an ok.
func (m *shares) ok() pushed {
	m.t.Helper()
	return m.await(func(p pushed) bool { return p.Type == "ok" })
}

// owns waits until the member owns so many partitions.
func (m *shares) owns(n int) {
	m.t.Helper()
	m.until(false, func() bool { return len(m.owned) == n })
}

func newCrew() *crew { return &crew{payloads: make(map[string]int), owners: make(map[int]string)} }

// heads are the positions of the last messages of the partitions of stream s.
func (s database) heads(t *testing.T, partitions int) map[int]int64 {
	t.Helper()
	heads := make(map[int]int64)
	for n := range partitions {
		info, err := s.engine.Streams.Info(t.Context(), fmt.Sprintf("s/%d", n))
		if err != nil {
			t.Fatal(err)
		}
		heads[n] = info.Head
	}
	return heads
}

// reached reports whether the member has everything of its partitions up to these positions.
func (m *shares) reached(heads map[int]int64) bool {
	for partition, position := range m.owned {
		if position < heads[partition] {
			return false
		}
	}
	return true
}

// publishKeys publishes messages with the payloads from to to - 1, one for each of ten keys in turn.
func publishKeys(t *testing.T, addr string, from, to int) {
	t.Helper()
	c := connect(t, addr)
	for n := from; n < to; n++ {
		send(t, c.Conn, fmt.Sprintf(`{"type":"publish","id":1,"stream":"s","key":"k%d","payload":"%d"}`, n%10, n))
	}
	for range to - from {
		var p pushed
		if line := c.next(); json.Unmarshal([]byte(line), &p) != nil || p.Type != "ok" {
			t.Fatal(line)
		}
	}
	c.Abort()
}

// largestRead is the largest payload that the servers of these tests read.
const largestRead = 300_000
