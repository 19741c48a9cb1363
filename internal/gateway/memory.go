package gateway

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidewire/tidewire/internal/budget"
	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/websocket"
)

const (
	// admission is how many bytes a connection must be able to reserve before it
	// reads a page of unknown size: while memory is short, a connection that
	// holds much waits for it, and one that holds little does not.
	admission = 64 << 10
	// followOverhead is the approximate size of an idle subscription or consumption, in
	// bytes: a goroutine, and its state in the store.
	followOverhead = 12 << 10
	// heldOverhead is the approximate memory of a message beside its content,
	// in bytes.
	heldOverhead = 160
)

// admit waits until a holder may hold more.
func admit(ctx context.Context, memory *budget.Holder) error {
	if err := memory.Reserve(ctx, budget.Page, admission); err != nil {
		return err
	}
	memory.Release(budget.Page, admission)
	return nil
}

func (c *connection) admit(ctx context.Context) error { return admit(ctx, c.memory) }
func (c *call) admit(ctx context.Context) error       { return admit(ctx, c.memory) }

// evict ends the connection, because it holds the most while memory is short. The
// budget calls it, perhaps under locks of the connection, so it closes in another
// goroutine.
func (c *connection) evict() {
	c.evicted.Store(true)
	if f := c.onEvicted.Load(); f != nil {
		(*f)()
	}
	go c.Evict(websocket.StatusTryAgainLater, budget.ErrEvicted.Error())
}

// socketMemory counts a WebSocket's buffers in the budget.
type socketMemory struct{ holder *budget.Holder }

func (m *socketMemory) Assembly(delta int) { m.count(budget.Assembly, int64(delta)) }
func (m *socketMemory) Output(delta int)   { m.count(budget.Output, int64(delta)) }

func (m *socketMemory) count(k budget.Kind, delta int64) {
	m.holder.Take(k, delta) // Take and Release ignore values below 1
	m.holder.Release(k, -delta)
}

// encodedBytes is about how much memory it takes to send messages that have so many bytes, beside these: one is encoded, and then put into a frame
// beside others, up to pushFrames.
func encodedBytes(bytes, messages int) int {
	one := bytes / max(messages, 1)
	return min(bytes, pushFrames+one) + one
}

// messageBytes and eventBytes are the approximate size of one in memory.
func messageBytes(m *engine.Message) int {
	return heldOverhead + len(m.Key) + len(m.Headers) + len(m.Payload)
}

func eventBytes(e *engine.Event) int {
	n := heldOverhead + len(e.Type) + len(e.ID) + len(e.Data)
	for _, tag := range e.Tags {
		n += 16 + len(tag)
	}
	return n
}

// registerBudget adds the budget's figures to /metrics.
func registerBudget(b *budget.Budget, metrics prometheus.Registerer) {
	for k := range budget.Kinds {
		metrics.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "tidewire_memory_held_bytes", Help: "Bytes that clients make the server hold, by kind of use.",
			ConstLabels: prometheus.Labels{"kind": budget.Kind(k).String()},
		}, func() float64 { return float64(b.Stats().ByKind[k]) }))
	}
	for _, m := range []struct {
		name, help string
		counter    bool
		value      func(budget.Stats) float64
	}{
		{"tidewire_memory_limit_bytes", "Bytes that clients may make the server hold.", false, func(s budget.Stats) float64 { return float64(s.Limit) }},
		{"tidewire_memory_largest_holder_bytes", "Bytes of the connection or request that holds the most.", false, func(s budget.Stats) float64 { return float64(s.Largest) }},
		{"tidewire_memory_waits_total", "Times that a connection or request had to wait for memory.", true, func(s budget.Stats) float64 { return float64(s.Waits) }},
		{"tidewire_memory_evictions_total", "Connections and requests that were ended because they held the most.", true, func(s budget.Stats) float64 { return float64(s.Evictions) }},
	} {
		value := func() float64 { return m.value(b.Stats()) }
		if m.counter {
			metrics.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: m.name, Help: m.help}, value))
		} else {
			metrics.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: m.name, Help: m.help}, value))
		}
	}
}
