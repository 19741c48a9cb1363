package main

import (
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// stats are the server's counters. Safe for concurrent use.
type stats struct {
	messages   atomic.Int64 // chats accepted
	dropped    atomic.Int64 // chats over the rate limit
	ignored    atomic.Int64 // malformed, of unknown type, or to a room not joined
	deliveries atomic.Int64 // chats written to a socket
	missed     atomic.Int64 // chats that were dropped because a client's buffer was full

	mu          sync.Mutex
	connections int
	open        int
	peak        int
}

func (s *stats) opened() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.connections++
	s.open++
	s.peak = max(s.peak, s.open)
}

func (s *stats) closed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open--
}

// write prints the block of statistics that every contender prints at its end.
func (s *stats) write(w io.Writer, elapsed time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	messages, dropped := s.messages.Load(), s.dropped.Load()
	var rate float64
	if messages+dropped > 0 {
		rate = 100 * float64(dropped) / float64(messages+dropped)
	}
	var average time.Duration
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
Messages missed: %d
Messages ignored: %d
`, messages, s.connections, s.peak, dropped, rate, float64(messages)/elapsed.Seconds(),
		elapsed.Round(time.Millisecond), average, s.deliveries.Load(), s.missed.Load(), s.ignored.Load())
	return err
}
