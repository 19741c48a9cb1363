package gateway

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/overview"
	"github.com/tidewire/tidewire/internal/wire"
)

// SessionConfig sets the limits of connections on /ws.
type SessionConfig struct {
	// MaxSubscriptions is how many subscriptions and consumptions a connection
	// may have together. Defaults to 100.
	MaxSubscriptions int
}

func (c SessionConfig) withDefaults() SessionConfig {
	if c.MaxSubscriptions == 0 {
		c.MaxSubscriptions = 100
	}
	return c
}

// sessions is the shared state of the connections on /ws.
type sessions struct {
	cfg     SessionConfig
	version string // of the server
	// maxMessage is the largest message of a client, in bytes.
	maxMessage int
	// mostUnsettled is how many bytes of unsettled deliveries a consumer may have.
	mostUnsettled int
	streams       engine.Streams
	queues        engine.Queues
	events        engine.Events
	chats         *chatServer
	work          context.Context
	flusher       *flusher
	log           *rareLog
	querying      *fairSlots // queries that read and encode their answer
	decoders      decoders
	shared        sharedSet
	consuming     consuming
	writers       sync.Pool // of *wire.Writer
	frames        sync.Pool // of *[]byte, for frames

	ignored, stored, delivered, settled atomic.Uint64
	latency                             overview.Latency // of publishes and enqueues, up to their commit
}

func newSessions(cfg Config, chats *chatServer, work context.Context) *sessions {
	s := &sessions{
		cfg: cfg.Sessions.withDefaults(), version: cfg.Version, maxMessage: cfg.MaxMessage, mostUnsettled: mostUnsettled(cfg.Budget), streams: cfg.Engine.Streams, queues: cfg.Engine.Queues, events: cfg.Engine.Events,
		chats: chats, work: work, flusher: newFlusher(), log: &rareLog{log: cfg.Log},
		querying: newFairSlots(queriesAtOnce), decoders: newDecoders(cfg.MaxJSONDepth),
	}
	for _, m := range []struct {
		name, help string
		value      *atomic.Uint64
	}{
		{"tidewire_ws_ignored_total", "Messages on /ws that had no effect: malformed, of unknown type, or rejected.", &s.ignored},
		{"tidewire_stored_messages_total", "Messages that clients had stored in streams and queues.", &s.stored},
		{"tidewire_delivered_messages_total", "Messages sent to subscribers and consumers.", &s.delivered},
		{"tidewire_settled_deliveries_total", "Deliveries that clients acknowledged, rejected or extended.", &s.settled},
	} {
		cfg.Metrics.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: m.name, Help: m.help},
			func() float64 { return float64(m.value.Load()) }))
	}
	return s
}

// maxBuffer is the largest buffer that goes back to the pool, in bytes.
const maxBuffer = 1 << 20

// writer returns an empty Writer. Call reuse after its use.
func (s *sessions) writer(e wire.Encoding) *wire.Writer {
	w, ok := s.writers.Get().(*wire.Writer)
	if !ok {
		w = new(wire.Writer)
	}
	w.Buf, w.Encoding = w.Buf[:0], e
	return w
}

func (s *sessions) reuse(w *wire.Writer) {
	if cap(w.Buf) <= maxBuffer {
		s.writers.Put(w)
	}
}

// buffer returns an empty buffer for frames. Call reuseBuffer after its use.
func (s *sessions) buffer() *[]byte {
	b, ok := s.frames.Get().(*[]byte)
	if !ok {
		b = new([]byte)
	}
	*b = (*b)[:0]
	return b
}

func (s *sessions) reuseBuffer(b *[]byte) {
	if cap(*b) <= maxBuffer {
		s.frames.Put(b)
	}
}

// rareLog writes at most one line per second: a store that fails, fails for all
// clients at once.
type rareLog struct {
	log  *slog.Logger
	last atomic.Int64 // unix milliseconds
}

func (l *rareLog) warn(text string, args ...any) { l.write(slog.LevelWarn, text, args) }

func (l *rareLog) fail(text string, args ...any) { l.write(slog.LevelError, text, args) }

func (l *rareLog) write(level slog.Level, text string, args []any) {
	now := time.Now().UnixMilli()
	if last := l.last.Load(); now-last >= 1000 && l.last.CompareAndSwap(last, now) {
		l.log.Log(context.Background(), level, text, args...)
	}
}
