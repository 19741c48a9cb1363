package gateway

import (
	"fmt"
	"io"
	"time"
)

// WriteChatStats writes the statistics of the chat endpoint, one per line: the
// block that every server of the same contract prints when it stops.
func (s *Server) WriteChatStats(w io.Writer) error {
	c := s.chats
	elapsed := time.Since(c.started)
	messages, dropped := c.messages.Load(), c.dropped.Load()
	rate, average := 0.0, time.Duration(0)
	if messages+dropped > 0 {
		rate = 100 * float64(dropped) / float64(messages+dropped)
	}
	if messages > 0 {
		average = elapsed / time.Duration(messages)
	}
	_, err := fmt.Fprintf(w, `--- Statistics ---
Total messages: %d
Total connections: %d
Peak connections: %d
Messages dropped: %d
Message drop rate: %.2f%%
Throughput: %.2f messages/sec
Processing time: %v
Average latency: %v
Deliveries: %d
`, messages, c.connections.Load(), c.peak.Load(), dropped, rate,
		float64(messages)/elapsed.Seconds(), elapsed.Round(time.Millisecond), average, c.hub.Stats().Deliveries)
	return err
}
