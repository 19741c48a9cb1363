package main

import "testing"

// TestHub_SlowMember misses the chats that its outbox has no room for; the others do not.
func TestHub_SlowMember(t *testing.T) {
	t.Parallel()
	var f figures
	h := newHub(&f)
	go h.run()
	slow, quick := &member{outbox: make(chan []byte, 2)}, &member{outbox: make(chan []byte, 9)}
	h.register <- entry{"r", slow}
	h.register <- entry{"r", quick}
	for range 7 {
		h.broadcast <- said{entry{room: "r"}, []byte("text")}
	}
	h.unregister <- entry{"r", slow}
	h.unregister <- entry{"r", quick}
	h.broadcast <- said{entry{room: "r"}, []byte("to nobody")}
	close(h.done)
	if len(slow.outbox) != 2 || len(quick.outbox) != 7 || f.missed.Load() != 5 {
		t.Errorf("slow %d, quick %d, missed %d, want 2, 7, 5", len(slow.outbox), len(quick.outbox), f.missed.Load())
	}
}
