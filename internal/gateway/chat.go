package gateway

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/room"
	"github.com/tidewire/tidewire/websocket"
)

// ChatConfig configures the chat endpoint.
type ChatConfig struct {
	// RateLimit is how many chats a second a connection may send, refilled
	// continuously. Defaults to 10.
	RateLimit float64
	// RateBurst is how many it may send at once. Defaults to 10.
	RateBurst float64
	// PingInterval is how often the server sends a JSON ping. Defaults to 30 s.
	PingInterval time.Duration
	// PongTimeout is after how long without anything from the peer a connection
	// is closed. Defaults to 60 s.
	PongTimeout time.Duration
	// MaxRooms is how many rooms a connection may be in. Defaults to 100.
	MaxRooms int
	// Room limits the lag of members.
	Room room.Config
	// StoredRooms are path.Match patterns for the names of rooms whose messages the
	// Engine's Rooms keep. A chat in such a room is committed before it is answered
	// and before any member gets it. Defaults to none.
	StoredRooms []string
	// RoomChats is how many of its last chats a stored room shows; 0: all that are kept.
	RoomChats int

	maxDepth int // Config.MaxJSONDepth
}

func (c ChatConfig) withDefaults() ChatConfig {
	if c.RateLimit == 0 {
		c.RateLimit = 10
	}
	if c.RateBurst == 0 {
		c.RateBurst = 10
	}
	if c.PingInterval == 0 {
		c.PingInterval = 30 * time.Second
	}
	if c.PongTimeout == 0 {
		c.PongTimeout = 60 * time.Second
	}
	if c.MaxRooms == 0 {
		c.MaxRooms = 100
	}
	return c
}

// chatServer is the chat endpoint: its rooms and statistics.
type chatServer struct {
	cfg     ChatConfig
	hub     *room.Hub
	audit   *audit
	stored  *storedRooms    // nil if there are none
	work    context.Context // the context of store calls by connections
	started time.Time

	messages, dropped, ignored atomic.Uint64
	connections, open, peak    atomic.Int64
}

func newChatServer(cfg ChatConfig, kept engine.Engine, work context.Context, metrics prometheus.Registerer, log *rareLog) *chatServer {
	cfg = cfg.withDefaults()
	c := &chatServer{cfg: cfg, work: work, started: time.Now()}
	if connect := cfg.Room.Connect; connect != nil {
		cfg.Room.Connect = func(name string, in *room.Inlet) room.Outlet {
			outlet := connect(name, in)
			if c.stored.has(name) {
				return presenceOnly{outlet} // chats come from the store, in one order on all servers
			}
			return outlet
		}
	}
	c.hub = room.NewHub(cfg.Room)
	c.stored = newStoredRooms(cfg, kept, c.hub, work, log)
	counter := func(name, help string, value func() float64) {
		metrics.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, value))
	}
	counter("tidewire_chat_messages_total", "Chats accepted.", func() float64 { return float64(c.messages.Load()) })
	counter("tidewire_chat_dropped_total", "Chats over the rate limit.", func() float64 { return float64(c.dropped.Load()) })
	counter("tidewire_chat_ignored_total", "Messages that were malformed, of unknown type, or for a room not joined.", func() float64 { return float64(c.ignored.Load()) })
	counter("tidewire_chat_deliveries_total", "Messages handed to members' sockets.", func() float64 { return float64(c.hub.Stats().Deliveries) })
	counter("tidewire_chat_missed_total", "Messages that lagging members missed.", func() float64 { return float64(c.hub.Stats().Missed) })
	if c.stored != nil {
		counter("tidewire_chat_rows_skipped_total", "Stored rows that were not sent to a joining member, because they are no chats.",
			func() float64 { return float64(c.stored.skipped.Load()) })
	}
	metrics.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "tidewire_chat_rooms", Help: "Rooms that have members or followers."},
		func() float64 { return float64(c.hub.Stats().Rooms) }))
	return c
}

// chat serves a connection on /ws/chat.
func (s *Server) chat(w http.ResponseWriter, r *http.Request) {
	var p *participant
	heard := func([]byte) { p.heart.heard = time.Now() }
	s.accept(w, r, websocket.Config{OnPing: heard, OnPong: heard, Compression: s.cfg.Compression}, func(c *connection) {
		s.chats.opened()
		defer s.chats.open.Add(-1)
		p = newParticipant(s.chats, c, s.cfg.DrainTimeout)
		c.participant.Store(p)
		c.identity.changed = p.rightsChanged // called with p.mu held
		c.identity.begin(true)
		c.owner.users.add(c)
		p.run()
	})
}

func (c *chatServer) opened() {
	c.connections.Add(1)
	open := c.open.Add(1)
	for peak := c.peak.Load(); open > peak && !c.peak.CompareAndSwap(peak, open); peak = c.peak.Load() {
	}
}
