package gateway

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/wire"
	"github.com/tidewire/tidewire/websocket"
)

// framesOf encodes messages alone.
func framesOf(messages []engine.Message) (frames []byte) {
	for i := range messages {
		var w wire.Writer
		writeMessage(&w, "s", "s", &messages[i])
		frames = websocket.AppendFrame(frames, websocket.OpText, w.Buf)
	}
	return frames
}

func pageOf(messages []engine.Message) *page {
	return &page{size: len(messages), position: func(n int) int64 { return messages[n].Position }, write: func(w *wire.Writer, n int) { writeMessage(w, "s", "s", &messages[n]) }}
}

// TestSharedFrames: subscriptions that read at different speeds, in pages of different sizes, get what they would get alone, also after a
// failover has lost messages.
func TestSharedFrames(t *testing.T) {
	t.Parallel()
	for seed := range uint64(3) {
		random := rand.New(rand.NewPCG(seed, 1))
		var log []engine.Message
		position := int64(0)
		grow := func() {
			for range random.IntN(20) {
				position += 1 + random.Int64N(3)
				log = append(log, engine.Message{Position: position, Payload: bytes.Repeat([]byte{'a' + byte(position%26)}, random.IntN(3_000))})
			}
		}
		var shared sharedFrames
		readers := make([]int, 5) // how much of the log each has
		both := 0
		for step := range 400 {
			if grow(); step%100 == 99 { // the last messages are lost; what comes next has higher positions
				kept := max(len(log)-5, 0)
				log = log[:kept]
				position += 1000
				for i := range readers {
					readers[i] = min(readers[i], kept)
				}
				grow()
			}
			i := random.IntN(len(readers))
			from := readers[i]
			to := min(from+1+random.IntN(30), len(log))
			if from >= to {
				continue
			}
			after := int64(0)
			if from > 0 {
				after = log[from-1].Position
			}
			parts := shared.of(after, pageOf(log[from:to]), new(wire.Writer))
			readers[i] = to
			if parts[0] == nil && parts[1] == nil {
				continue // too old: it is encoded alone
			}
			both++
			if got := bytes.Join(parts[:], nil); !bytes.Equal(got, framesOf(log[from:to])) {
				t.Fatalf("seed %d, step %d: %d bytes after %d, want those of the messages %d to %d", seed, step, len(got), after, log[from].Position, log[to-1].Position)
			}
		}
		if both < 100 {
			t.Errorf("seed %d: only %d pages were shared", seed, both)
		}
	}
}
