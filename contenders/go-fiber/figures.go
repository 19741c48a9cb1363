package main

import (
	"fmt"
	"io"
	"sync/atomic"
	"time"
)

// figures are counters that all goroutines increment.
type figures struct {
	messages, dropped, ignored  atomic.Uint64 // of clients
	deliveries, missed          atomic.Uint64 // to clients; missed: the outbox was full
	connections, current, peaks atomic.Int64
}

func (f *figures) connect() {
	f.connections.Add(1)
	now := f.current.Add(1)
	for {
		peak := f.peaks.Load()
		if now <= peak || f.peaks.CompareAndSwap(peak, now) {
			return
		}
	}
}

func (f *figures) disconnect() { f.current.Add(-1) }

// print writes the block of statistics at the end of a run.
func (f *figures) print(w io.Writer, elapsed time.Duration) error {
	messages, dropped := f.messages.Load(), f.dropped.Load()
	share, latency := 0.0, time.Duration(0)
	if all := messages + dropped; all > 0 {
		share = float64(dropped) / float64(all)
	}
	if messages > 0 {
		latency = elapsed / time.Duration(messages)
	}
	lines := []struct{ name, value string }{
		{"Total messages", fmt.Sprint(messages)},
		{"Total connections", fmt.Sprint(f.connections.Load())},
		{"Peak connections", fmt.Sprint(f.peaks.Load())},
		{"Messages dropped", fmt.Sprint(dropped)},
		{"Message drop rate", fmt.Sprintf("%.2f%%", 100*share)},
		{"Throughput", fmt.Sprintf("%.2f messages/sec", float64(messages)/elapsed.Seconds())},
		{"Processing time", elapsed.Round(time.Millisecond).String()},
		{"Average latency", latency.String()},
		{"Deliveries", fmt.Sprint(f.deliveries.Load())},
		{"Messages missed", fmt.Sprint(f.missed.Load())},
		{"Messages ignored", fmt.Sprint(f.ignored.Load())},
	}
	text := "--- Statistics ---\n"
	for _, l := range lines {
		text += l.name + ": " + l.value + "\n"
	}
	_, err := io.WriteString(w, text)
	return err
}
