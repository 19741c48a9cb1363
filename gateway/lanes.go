package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidewire/tidewire/websocket"
)

// MaxDummySize is the largest LanesConfig.DummySize, in bytes.
const MaxDummySize = 64 << 20

// LanesConfig configures the lanes endpoint.
type LanesConfig struct {
	// DummySize is the size of what the server pushes, in bytes, at most
	// MaxDummySize. Defaults to 1 MiB.
	DummySize int
	// DummyEvery is how often it pushes. A tick at which the socket takes nothing
	// waits, and those it misses are left out. Defaults to 500 us.
	DummyEvery time.Duration
	// Chunk and Credit are websocket.Config's BulkChunk and BulkCredit. Default
	// as there.
	Chunk, Credit int
	// LagTimeout is for how long a client may take nothing before it is closed.
	// Defaults to 30 s.
	LagTimeout time.Duration
}

func (c LanesConfig) withDefaults() LanesConfig {
	if c.DummySize == 0 {
		c.DummySize = 1 << 20
	}
	if c.DummyEvery == 0 {
		c.DummyEvery = 500 * time.Microsecond
	}
	if c.LagTimeout == 0 {
		c.LagTimeout = 30 * time.Second
	}
	return c
}

// lanesServer is the lanes endpoint: a flood, and answers through it.
type lanesServer struct {
	cfg   LanesConfig
	dummy []byte

	dummies, echoes           atomic.Int64
	controlWaits, controlWait atomic.Int64 // of connections that have ended, as bulkWait
	bulkWait                  atomic.Int64 // ns
}

func newLanesServer(cfg LanesConfig, metrics prometheus.Registerer) *lanesServer {
	l := &lanesServer{cfg: cfg.withDefaults()}
	l.dummy = bytes.Repeat([]byte("d"), l.cfg.DummySize)
	for _, m := range []struct {
		name, help string
		value      func() float64
	}{
		{"tidewire_lanes_dummies_total", "Messages pushed.", func() float64 { return float64(l.dummies.Load()) }},
		{"tidewire_lanes_echoes_total", "Messages echoed.", func() float64 { return float64(l.echoes.Load()) }},
		{"tidewire_lanes_control_waits_total", "Times that an answer found a chunk being written, of connections that have ended.", func() float64 { return float64(l.controlWaits.Load()) }},
		{"tidewire_lanes_control_wait_seconds_total", "How long answers waited for chunks being written, of connections that have ended.", func() float64 { return time.Duration(l.controlWait.Load()).Seconds() }},
		{"tidewire_lanes_bulk_wait_seconds_total", "How long the bulk lane waited for its turn, credit and the socket, of connections that have ended.", func() float64 { return time.Duration(l.bulkWait.Load()).Seconds() }},
	} {
		metrics.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: m.name, Help: m.help}, m.value))
	}
	return l
}

// lanes serves a connection on /ws/lanes. ?variant=plain is the textbook way:
// whole messages, first come first served, and a kernel that takes what it will.
func (s *Server) lanes(w http.ResponseWriter, r *http.Request) {
	cfg := websocket.Config{BulkChunk: s.flood.cfg.Chunk, BulkCredit: s.flood.cfg.Credit, WriteTimeout: s.flood.cfg.LagTimeout}
	plain := false
	switch r.URL.Query().Get("variant") {
	case "":
	case "plain":
		plain = true
		cfg.BulkChunk, cfg.BulkCredit, cfg.KernelUnsent = max(MaxDummySize, s.cfg.MaxMessage), -1, -1
	default:
		http.Error(w, "variant: want plain or none", http.StatusBadRequest)
		return
	}
	s.accept(w, r, cfg, func(c *connection) {
		f := &flooded{server: s.flood, conn: c, plain: plain, drain: s.cfg.DrainTimeout}
		f.run()
	})
}

// flooded is one connection on /ws/lanes.
type flooded struct {
	server *lanesServer
	conn   *connection
	plain  bool
	drain  time.Duration
	credit bool // the client has said that it gives credit
}

func (f *flooded) run() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	f.conn.whenStopped(func() {
		f.conn.StartClose(websocket.StatusGoingAway, "server is shutting down")
		f.conn.SetReadDeadline(time.Now().Add(f.drain))
		cancel()
	})
	var pushing sync.WaitGroup
	pushing.Go(func() { f.push(ctx) })
	err := f.read(ctx)
	cancel()
	f.conn.Close(closeCode(f.conn, err), "")
	pushing.Wait()
	stats := f.conn.Lanes()
	f.server.controlWaits.Add(stats.ControlWaits)
	f.server.controlWait.Add(int64(stats.ControlWait))
	f.server.bulkWait.Add(int64(stats.BulkWait))
}

// push sends a dummy at every tick. One tick may wait, as in a ticker's channel.
func (f *flooded) push(ctx context.Context) {
	tick := time.NewTicker(f.server.cfg.DummyEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if err := f.conn.WriteBulk(ctx, websocket.OpText, f.server.dummy); err != nil {
			f.tooSlow(err)
			return
		}
		f.server.dummies.Add(1)
	}
}

// tooSlow tells a client that takes nothing why it is closed.
func (f *flooded) tooSlow(err error) {
	if errors.Is(err, websocket.ErrSlowReader) {
		f.conn.StartClose(websocket.StatusPolicyViolation, "reads too slowly")
		f.conn.SetReadDeadline(time.Now())
	}
}

// read echoes what arrives. All echoes of one read leave in one write.
func (f *flooded) read(ctx context.Context) error {
	for {
		messages, err := f.conn.Read()
		for _, m := range messages {
			if !f.settings(m) {
				f.echo(ctx, m)
			}
		}
		if err != nil {
			return err
		}
	}
}

func (f *flooded) echo(ctx context.Context, m websocket.Message) {
	f.server.echoes.Add(1)
	if f.plain {
		f.tooSlow(f.conn.WriteBulk(ctx, m.Op, m.Payload))
		return
	}
	f.tooSlow(f.conn.Queue(m.Op, m.Payload))
}

// laneSettings is what a client may say about itself: hello, with whether it
// reassembles chunks and gives credit, or credit, with how much.
type laneSettings struct {
	hello          bool
	chunks, credit bool
	bytes          int64
}

const maxSettings = 256 // bytes; what is larger is an application's message

// parseSettings tells a message about the connection from one to be echoed. why
// is what is wrong with it, "" if nothing.
func parseSettings(m websocket.Message) (s laneSettings, ours bool, why code) {
	if m.Op != websocket.OpText || len(m.Payload) > maxSettings || len(m.Payload) == 0 || m.Payload[0] != '{' {
		return s, false, ""
	}
	var kind struct {
		Type any `json:"type"`
	}
	if json.Unmarshal(m.Payload, &kind) != nil {
		return s, false, ""
	}
	switch kind.Type {
	case "hello":
		var hello struct {
			Chunks bool `json:"chunks"`
			Credit bool `json:"credit"`
		}
		if json.Unmarshal(m.Payload, &hello) != nil {
			return s, true, codeMalformed
		}
		return laneSettings{hello: true, chunks: hello.Chunks, credit: hello.Credit}, true, ""
	case "credit":
		var credit struct {
			Bytes int64 `json:"bytes"`
		}
		if json.Unmarshal(m.Payload, &credit) != nil {
			return s, true, codeMalformed
		}
		return laneSettings{bytes: credit.Bytes}, true, ""
	case "chunk":
		return s, true, codeChunksNotOffered
	default:
		return s, false, ""
	}
}

// settings applies a message about the connection, which is not echoed, and
// reports whether m was one.
func (f *flooded) settings(m websocket.Message) bool {
	s, ours, why := parseSettings(m)
	if !ours {
		return false
	}
	switch {
	case why != "":
	case s.hello:
		if s.chunks {
			f.conn.SetChunked()
		}
		f.credit = f.credit || s.credit
	case !f.credit:
		why = codeCreditNotOffered
	case f.conn.Grant(s.bytes) != nil:
		why = codeCredit
	}
	if why != "" {
		text, _ := json.Marshal(map[string]any{"type": "error", "code": why, "message": publicErrors[why]}) // no value of ours fails
		f.echo(context.Background(), websocket.Message{Op: websocket.OpText, Payload: text})
	}
	return true
}
