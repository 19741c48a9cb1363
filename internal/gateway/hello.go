package gateway

import (
	"time"

	"github.com/tidewire/tidewire/internal/wire"
	"github.com/tidewire/tidewire/websocket"
)

// repeatWindow is how long a server at least remembers a request that can be repeated: see package stream.
const repeatWindow = 10 * time.Minute

// hello sends what the server is, to a client that has named a subprotocol.
func (s *session) hello() {
	if s.conn.Subprotocol() == "" {
		return
	}
	s.conn.notice(func(w *wire.Writer) {
		w.Open()
		w.Name("type")
		w.Text("hello")
		s.writeHello(w)
		w.Close()
	})
}

// writeHello writes the fields of a hello.
func (s *session) writeHello(w *wire.Writer) {
	optionalText(w, "version", s.server.version)
	w.Name("protocol")
	w.Text(s.conn.Subprotocol())
	w.Name("now_ms")
	w.Int(time.Now().UnixMilli())
	w.Name("authenticated")
	w.Bool(s.conn.identity.policy == nil || s.conn.identity.caller.Load() != nil)
	w.Name("features")
	w.OpenList()
	for _, feature := range s.server.features() {
		w.Next()
		w.Text(feature)
	}
	w.CloseList()
	w.Name("limits")
	w.Open()
	for _, limit := range s.server.limits() {
		w.Name(limit.name)
		w.Int(limit.value)
	}
	w.Close()
}

// features are what this server can do.
func (s *sessions) features() []string {
	all := []string{"rooms"}
	for _, f := range []struct {
		name string
		has  bool
	}{{"stored_rooms", s.chats.stored != nil}, {"streams", s.streams != nil}, {"queues", s.queues != nil}, {"events", s.events != nil}} {
		if f.has {
			all = append(all, f.name)
		}
	}
	return all
}

// limit is a limit that a client has to know.
type limit struct {
	name  string
	value int64
}

// limits are those of one connection, and of one message.
func (s *sessions) limits() []limit {
	return []limit{
		{"message_bytes", int64(s.maxMessage)}, {"depth", int64(s.decoders.maxDepth)}, {"values", maxElements},
		{"messages", maxBatch}, {"events", maxBatch}, {"deliveries", maxBatch},
		{"subscriptions", int64(s.cfg.MaxSubscriptions)}, {"credits", maxCredits}, {"queue_credits", maxPrefetch},
		{"rooms", int64(s.chats.cfg.MaxRooms)}, {"repeat_ms", repeatWindow.Milliseconds()},
	}
}

// notice sends a message that no request has asked for, in the encoding of the connection.
func (c *connection) notice(write func(w *wire.Writer)) {
	var w wire.Writer
	if c.Subprotocol() == subprotocolCBOR {
		w.Encoding = wire.CBOR
	}
	write(&w)
	if c.Queue(opcode(w.Encoding), w.Buf) == websocket.ErrSlowReader {
		c.Abort()
		return
	}
	c.Flush()
}
