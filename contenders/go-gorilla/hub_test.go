package main

import "testing"

// TestHub_FullBuffer: a client that does not read misses messages, and delays
// nobody.
func TestHub_FullBuffer(t *testing.T) {
	t.Parallel()
	var s stats
	h := newHub(&s)
	go h.run()
	defer h.stop()
	slow := &client{send: make(chan outgoing, 1)}
	quick := &client{send: make(chan outgoing, 10)}
	h.joins <- membership{slow, "r"}
	h.joins <- membership{quick, "r"}
	for range 5 {
		h.broadcast <- chat{room: "r", payload: []byte("x")}
	}
	h.leaves <- membership{slow, "r"} // so that all before is done
	if len(slow.send) != 1 || len(quick.send) != 5 || s.missed.Load() != 4 {
		t.Errorf("slow has %d, quick %d, %d missed, want 1, 5, 4", len(slow.send), len(quick.send), s.missed.Load())
	}
}
