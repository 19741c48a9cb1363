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
	// DummySize is the size of a pushed message, in bytes, at most
	// MaxDummySize. Defaults to 1 MiB.
	DummySize int
	// DummyEvery is how often the server pushes. A push waits while the socket
	// takes nothing, and ticks missed meanwhile are skipped. Defaults to 500 us.
	DummyEvery time.Duration
	// Chunk and Credit are websocket.Config's BulkChunk and BulkCredit, with
	// the same defaults.
	Chunk, Credit int
	// LagTimeout is how long a client may read nothing before its connection is
	// closed. Defaults to 30 s.
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

// lanesServer is the lanes endpoint: it pushes bulk messages and echoes
// requests at the same time.
type lanesServer struct {
	cfg   LanesConfig
	dummy []byte

	dummies, echoes atomic.Int64
}

func newLanesServer(cfg LanesConfig, metrics prometheus.Registerer) *lanesServer {
	l := &lanesServer{cfg: cfg.withDefaults()}
	l.dummy = bytes.Repeat([]byte("d"), l.cfg.DummySize)
	l.register(metrics)
	return l
}

// lanes serves a connection on /ws/lanes. ?variant=plain is the textbook way:
// whole messages, first come first served, without a limit on the kernel's
// buffer.
func (s *Server) lanes(w http.ResponseWriter, r *http.Request) {
	cfg := websocket.Config{BulkChunk: s.flood.cfg.Chunk, BulkCredit: s.flood.cfg.Credit, WriteTimeout: s.flood.cfg.LagTimeout}
	// Nothing is read while more than half of it is unsent, so the other half
	// must hold the echoes of one more read, with a message of the largest size
	// among them.
	cfg.MaxUnsent = max(4<<20, 4*s.cfg.MaxMessage)
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
		c.identity.begin(false)
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
	credit bool // the client has announced that it grants credit
}

func (f *flooded) run() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	f.conn.whenStopped(func() {
		f.conn.StartClose(websocket.StatusGoingAway, f.conn.goingAway())
		f.conn.SetReadDeadline(time.Now().Add(f.drain))
		cancel()
	})
	var pushing sync.WaitGroup
	pushing.Go(func() { f.conn.guard(func() { f.push(ctx) }) })
	err := f.conn.try(func() error { return f.read(ctx) })
	cancel()
	f.conn.Close(ended(f.conn, err))
	pushing.Wait()
}

// tickSlack is how late a push may be without shifting the following ones:
// timers are coarse, a millisecond on many systems. Ticks missed for longer are
// skipped.
const tickSlack = 2 * time.Millisecond

// push sends a dummy at every tick.
func (f *flooded) push(ctx context.Context) {
	timer := time.NewTimer(f.server.cfg.DummyEvery)
	defer timer.Stop()
	for next := time.Now().Add(f.server.cfg.DummyEvery); ; next = next.Add(f.server.cfg.DummyEvery) {
		now := time.Now()
		if now.Sub(next) > tickSlack {
			next = now
		}
		if wait := next.Sub(now); wait > 0 {
			timer.Reset(wait)
			select {
			case <-timer.C:
			case <-ctx.Done():
				return
			}
		}
		if err := f.conn.WriteBulk(ctx, websocket.OpText, f.server.dummy); err != nil {
			f.tooSlow(err)
			return
		}
		f.server.dummies.Add(1)
	}
}

// tooSlow closes the connection of a client that reads nothing, with the
// reason.
func (f *flooded) tooSlow(err error) {
	if errors.Is(err, websocket.ErrSlowReader) {
		f.conn.StartClose(websocket.StatusPolicyViolation, "reads too slowly")
		f.conn.SetReadDeadline(time.Now())
	}
}

// read echoes all messages. The echoes of one read are sent in one write.
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
	if err := f.answer(ctx, m); err != nil {
		f.tooSlow(err)
		return
	}
	f.server.echoes.Add(1)
}

// answer sends m on the control lane, or, in the plain variant, after
// everything else.
func (f *flooded) answer(ctx context.Context, m websocket.Message) error {
	if f.plain {
		return f.conn.WriteBulk(ctx, m.Op, m.Payload)
	}
	return f.conn.Queue(m.Op, m.Payload)
}

// laneSettings is a client's message about its connection: hello, with whether
// it reassembles chunks and grants credit, or credit, with the number of bytes.
type laneSettings struct {
	id             json.RawMessage // if it wants an answer
	hello          bool
	chunks, credit bool
	bytes          int64
}

const maxSettings = 256 // bytes; a larger message is echoed

// parseSettings distinguishes a message about the connection from one to be
// echoed. why is the problem of the former, or nil.
func parseSettings(m websocket.Message) (s laneSettings, ours bool, why *problem) {
	if m.Op != websocket.OpText || len(m.Payload) > maxSettings || !bytes.HasPrefix(bytes.TrimLeft(m.Payload, " \t\r\n"), []byte("{")) {
		return s, false, nil
	}
	var fields map[string]json.RawMessage // case-sensitive: a message with "TYPE" is echoed
	var kind string
	if json.Unmarshal(m.Payload, &fields) != nil || json.Unmarshal(fields["type"], &kind) != nil {
		return s, false, nil
	}
	if id := fields["id"]; len(id) <= maxIDBytes {
		s.id = id
	}
	switch kind {
	case "hello":
		var hello struct {
			Chunks bool `json:"chunks"`
			Credit bool `json:"credit"`
		}
		if err := json.Unmarshal(m.Payload, &hello); err != nil {
			return s, true, undecodable(m.Payload, err)
		}
		return laneSettings{id: s.id, hello: true, chunks: hello.Chunks, credit: hello.Credit}, true, nil
	case "credit":
		var credit struct {
			Bytes int64 `json:"bytes"`
		}
		if err := json.Unmarshal(m.Payload, &credit); err != nil {
			return s, true, undecodable(m.Payload, err)
		}
		return laneSettings{id: s.id, bytes: credit.Bytes}, true, nil
	case "chunk":
		return s, true, because(codeChunksNotOffered)
	default:
		return s, false, nil
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
	case why != nil:
	case s.hello:
		if s.chunks {
			f.conn.SetChunked()
		}
		f.credit = f.credit || s.credit
	case !f.credit:
		why = because(codeCreditNotOffered)
	case f.conn.Grant(s.bytes) != nil:
		why = because(codeCredit)
	}
	f.confirm(s.id, why)
	return true
}

// confirm answers a message about the connection, if it has an ID or a problem.
func (f *flooded) confirm(id json.RawMessage, why *problem) {
	answer := map[string]any{"type": "ok"}
	if why != nil {
		answer = map[string]any{"type": "error", "code": why.code, "message": why.message(), "retryable": retryable[why.code]}
	} else if id == nil {
		return
	}
	if id != nil {
		answer["id"] = id
	}
	text, _ := json.Marshal(answer) // no value of ours fails
	f.tooSlow(f.answer(context.Background(), websocket.Message{Op: websocket.OpText, Payload: text}))
}
