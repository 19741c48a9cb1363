package room_test

import (
	"bytes"
	"sync"
	"testing"

	"github.com/tidewire/tidewire/internal/room"
	"github.com/tidewire/tidewire/websocket"
)

// TestListen: listeners get all frames from their beginning on, in order, and the room ends after them.
func TestListen(t *testing.T) {
	t.Parallel()
	hub := room.NewHub(room.Config{})
	const all = 2000
	var mu sync.Mutex
	heard := make([][]byte, 3)
	done := make(chan struct{}, len(heard))
	end := make([]int64, len(heard))
	var listeners []*room.Listener
	var want [][]byte
	for n := range heard {
		listeners = append(listeners, hub.Listen("r", func(start int64, frames []byte) {
			mu.Lock()
			defer mu.Unlock()
			if end[n] != 0 && start != end[n] {
				t.Errorf("frames at %d, want %d", start, end[n])
			}
			end[n] = start + int64(len(frames))
			if heard[n] = append(heard[n], frames...); bytes.HasSuffix(frames, []byte("last")) {
				done <- struct{}{}
			}
		}))
		want = append(want, nil)
		for range all {
			frame := []byte("chat")
			hub.Publish("r", nil, websocket.OpText, frame)
			for i := range want {
				want[i] = websocket.AppendFrame(want[i], websocket.OpText, frame)
			}
		}
	}
	hub.Publish("r", nil, websocket.OpText, []byte("last"))
	for i := range want {
		want[i] = websocket.AppendFrame(want[i], websocket.OpText, []byte("last"))
		<-done
	}
	mu.Lock()
	for i := range heard {
		if !bytes.Equal(heard[i], want[i]) {
			t.Errorf("listener %d has %d bytes, want %d", i, len(heard[i]), len(want[i]))
		}
		if listeners[i].Head() != end[i] {
			t.Errorf("listener %d has heard up to %d, and the head is %d", i, end[i], listeners[i].Head())
		}
	}
	mu.Unlock()
	for _, l := range listeners {
		if !hub.Has("r") {
			t.Error("the room has ended before its listeners")
		}
		l.Close()
		l.Close()
	}
	hub.Wait()
	if hub.Has("r") {
		t.Error("the room has not ended")
	}
}
