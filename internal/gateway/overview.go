package gateway

import (
	"context"
	"math"
	"runtime/metrics"
	"sync"
	"time"

	"github.com/tidewire/tidewire/internal/budget"
	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/overview"
)

// recorded returns the Recorder of a server that serves everything.
func (s *Server) recorded() *overview.Recorder {
	total := func(name string, read func() uint64) overview.Figure {
		return overview.Figure{Name: name, Total: true, Read: func() int64 { return int64(read()) }}
	}
	return overview.NewRecorder(time.Now(), &s.sessions.latency,
		overview.Figure{Name: "connections", Read: func() int64 { return int64(s.conns.count()) }},
		overview.Figure{Name: "memory_bytes", Read: processMemory},
		overview.Figure{Name: "unsent_bytes", Read: func() int64 { return s.cfg.Budget.Held(budget.Output) }},
		overview.Figure{Name: "group_lag", Read: s.worst.read},
		total("stored", s.sessions.stored.Load),
		total("chats", s.chats.messages.Load),
		total("ingested", s.ingested.Load),
		total("delivered", s.sessions.delivered.Load),
		total("settled", s.sessions.settled.Load),
		total("room_deliveries", func() uint64 { return s.chats.hub.Stats().Deliveries }),
		total("missed", func() uint64 { return s.chats.hub.Stats().Missed }),
		total("rate_limited", func() uint64 { return s.chats.dropped.Load() + s.limits.Limited() }),
	)
}

// processMemory is the memory that this process has from the system, in bytes.
func processMemory() int64 {
	sample := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(sample)
	return int64(sample[0].Value.Uint64() - sample[1].Value.Uint64())
}

// overview answers with the last points of this server.
func (c *call) overview() {
	after, ok := c.number("after", 0, math.MaxInt64, 0)
	if !ok {
		return
	}
	worst := c.r.URL.Query().Get("worst")
	if worst != "" && worst != "true" {
		c.refuseFor(wrong(codeParameter, "worst", "true, or none"))
		return
	}
	s := c.api.server
	answer := map[string]any{
		"started": s.recorder.Began().UTC(), "closed": s.cfg.Auth.Policy != nil, "points": s.recorder.After(after),
	}
	if s.cfg.Version != "" {
		answer["version"] = s.cfg.Version
	}
	if s.cfg.Nodes != nil {
		answer["node"] = s.cfg.Nodes.Name()
	}
	if s.cfg.Engine.Database != nil {
		answer["database"] = s.database.look(c.ctx, s.cfg.Engine.Database)
	}
	if worst != "" {
		group, queue := s.worst.look(c.ctx, s.cfg.Engine, c.caller)
		if group != nil {
			answer["group"] = group
		}
		if queue != nil {
			answer["queue"] = queue
		}
	}
	c.answer(answer)
}

// databaseEvery is how old the state of the database may be, and databaseTimeout how long the database may take for it.
const (
	databaseEvery   = 5 * time.Second
	databaseTimeout = 2 * time.Second
)

// databaseState is what /v1/overview tells of the database.
type databaseState struct {
	Reachable      bool   `json:"reachable"`
	Version        string `json:"version,omitempty"`
	LatencyUS      int64  `json:"latency_us,omitempty"`
	SizeBytes      int64  `json:"size_bytes,omitempty"`
	WALBytes       *int64 `json:"wal_bytes_per_second,omitempty"` // missing at first, and on a standby
	Standbys       int    `json:"standbys"`
	Connections    int    `json:"connections"`
	MaxConnections int    `json:"max_connections"`
}

// databaseLook keeps the state of the database, so that any number of consoles cost one query in some seconds. Safe for concurrent use.
type databaseLook struct {
	mu    sync.Mutex
	state databaseState
	at    time.Time
	wal   int64 // at that time; 0 if unknown
}

// look returns the state, at most databaseEvery old. Others wait for the one that asks the database.
func (d *databaseLook) look(ctx context.Context, database func(context.Context) (engine.Database, error)) databaseState {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.at.IsZero() && time.Since(d.at) < databaseEvery {
		return d.state
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), databaseTimeout) // the answer is for others, too
	defer cancel()
	began := time.Now()
	is, err := database(ctx)
	now := time.Now()
	if err != nil {
		d.state, d.at, d.wal = databaseState{Connections: is.Connections, MaxConnections: is.MaxConnections}, now, 0
		return d.state
	}
	state := databaseState{
		Reachable: true, Version: is.Version, LatencyUS: max(now.Sub(began).Microseconds(), 1), SizeBytes: is.Size,
		Standbys: is.Standbys, Connections: is.Connections, MaxConnections: is.MaxConnections,
	}
	if d.wal > 0 && is.WAL >= d.wal {
		rate := int64(float64(is.WAL-d.wal) / now.Sub(d.at).Seconds())
		state.WALBytes = &rate
	}
	d.state, d.at, d.wal = state, now, is.WAL
	return d.state
}
