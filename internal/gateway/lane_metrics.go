package gateway

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidewire/tidewire/websocket"
)

// laneTotals sums the lane statistics of all connections, open and ended.
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

// closed adds a connection's final statistics and removes the connection in one
// step, so that no sum ever decreases.
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

// unsent returns how many bytes lie between the server and its clients' kernels. It takes
// a system call for each connection, so t.mu is not held meanwhile.
func (t *laneTotals) unsent() (n int) {
	t.mu.Lock()
	open := slices.Collect(maps.Keys(t.open))
	t.mu.Unlock()
	for _, c := range open {
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
	to.LiveWaits += s.LiveWaits
	to.LiveWait += s.LiveWait
}

// register adds the totals to /metrics.
func (t *laneTotals) register(metrics prometheus.Registerer) {
	counter := func(name, help string, labels prometheus.Labels, value func(websocket.LaneStats) float64) {
		metrics.MustRegister(prometheus.NewCounterFunc(
			prometheus.CounterOpts{Name: name, Help: help, ConstLabels: labels},
			func() float64 { return value(t.sum()) }))
	}
	for lane, wait := range map[string]func(websocket.LaneStats) time.Duration{
		"control": func(s websocket.LaneStats) time.Duration { return s.ControlWait },
		"live":    func(s websocket.LaneStats) time.Duration { return s.LiveWait },
		"bulk":    func(s websocket.LaneStats) time.Duration { return s.BulkWait },
	} {
		counter("tidewire_lane_wait_seconds_total",
			"How long messages that were ready to send waited: for other lanes, for the socket, and on the bulk lane for credit.",
			prometheus.Labels{"lane": lane}, func(s websocket.LaneStats) float64 { return wait(s).Seconds() })
	}
	for lane, waits := range map[string]func(websocket.LaneStats) int64{
		"control": func(s websocket.LaneStats) int64 { return s.ControlWaits },
		"live":    func(s websocket.LaneStats) int64 { return s.LiveWaits },
	} {
		counter("tidewire_lane_waits_total", "How often messages that were ready to send had to wait.",
			prometheus.Labels{"lane": lane}, func(s websocket.LaneStats) float64 { return float64(waits(s)) })
	}
	counter("tidewire_bulk_chunks_total", "Chunks that sockets took on the bulk lane.", nil,
		func(s websocket.LaneStats) float64 { return float64(s.BulkChunks) })
	counter("tidewire_bulk_bytes_total", "Bytes that sockets took on the bulk lane.", nil,
		func(s websocket.LaneStats) float64 { return float64(s.BulkBytes) })
	metrics.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "tidewire_unsent_bytes",
		Help: "Bytes queued, or held by the kernel and not acknowledged by the client's kernel.",
	}, func() float64 { return float64(t.unsent()) }))
}

// register adds the server's counters to /metrics.
func (l *lanesServer) register(metrics prometheus.Registerer) {
	for _, m := range []struct {
		name, help string
		value      func() float64
	}{
		{"tidewire_lanes_dummies_total", "Messages pushed to clients of /ws/lanes.", func() float64 { return float64(l.dummies.Load()) }},
		{"tidewire_lanes_dummy_bytes_total", "Bytes of the messages pushed to clients of /ws/lanes.", func() float64 { return float64(l.dummies.Load()) * float64(len(l.dummy)) }},
		{"tidewire_lanes_echoes_total", "Messages of clients of /ws/lanes that were echoed.", func() float64 { return float64(l.echoes.Load()) }},
	} {
		metrics.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: m.name, Help: m.help}, m.value))
	}
}
