package gateway

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidewire/tidewire/websocket"
)

// laneTotals adds up what the lanes of all connections did, of those that are
// open and of those that have ended.
type laneTotals struct {
	mu    sync.Mutex
	open  map[*websocket.Conn]struct{}
	ended websocket.LaneStats
}

func (t *laneTotals) opened(c *websocket.Conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open == nil {
		t.open = make(map[*websocket.Conn]struct{})
	}
	t.open[c] = struct{}{}
}

// closed keeps a connection's last figures, in the same moment as it forgets the
// connection, so that no sum ever falls.
func (t *laneTotals) closed(c *websocket.Conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.open, c)
	add(&t.ended, c.Lanes())
}

func (t *laneTotals) sum() websocket.LaneStats {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.ended
	for c := range t.open {
		add(&s, c.Lanes())
	}
	return s
}

// unsent is how many bytes lie between the server and its clients' systems.
func (t *laneTotals) unsent() (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for c := range t.open {
		n += c.Backlog()
	}
	return n
}

func add(to *websocket.LaneStats, s websocket.LaneStats) {
	to.BulkBytes += s.BulkBytes
	to.BulkChunks += s.BulkChunks
	to.BulkWait += s.BulkWait
	to.ControlWaits += s.ControlWaits
	to.ControlWait += s.ControlWait
}

// register shows the server's figures at /metrics.
func (l *lanesServer) register(metrics prometheus.Registerer) {
	for _, m := range []struct {
		name, help string
		value      func() float64
	}{
		{"tidewire_lanes_dummies_total", "Messages pushed.", func() float64 { return float64(l.dummies.Load()) }},
		{"tidewire_lanes_dummy_bytes_total", "Bytes of the messages pushed.", func() float64 { return float64(l.dummies.Load()) * float64(len(l.dummy)) }},
		{"tidewire_lanes_echoes_total", "Messages echoed.", func() float64 { return float64(l.echoes.Load()) }},
		{"tidewire_lanes_control_waits_total", "Times that an answer found a chunk being written.", func() float64 { return float64(l.totals.sum().ControlWaits) }},
		{"tidewire_lanes_control_wait_seconds_total", "How long answers waited for chunks being written.", func() float64 { return l.totals.sum().ControlWait.Seconds() }},
		{"tidewire_lanes_bulk_chunks_total", "Chunks that sockets took on the bulk lane.", func() float64 { return float64(l.totals.sum().BulkChunks) }},
		{"tidewire_lanes_bulk_wait_seconds_total", "How long the bulk lane waited for its turn, credit and the socket.", func() float64 { return l.totals.sum().BulkWait.Seconds() }},
	} {
		metrics.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: m.name, Help: m.help}, m.value))
	}
	metrics.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "tidewire_lanes_unsent_bytes",
		Help: "Bytes queued, or taken by the kernel and not acknowledged by the client's.",
	}, func() float64 { return float64(l.totals.unsent()) }))
}
