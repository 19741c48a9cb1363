package stream

import (
	"testing"
)

// lastListener is Peers of which the test is the other process.
type lastListener struct{ receive func(page []byte) }

func (l *lastListener) Send(int32, []byte) {}

func (l *lastListener) Listen(_ int32, receive func([]byte)) (stop func()) {
	l.receive = receive
	return func() {}
}

func pageFrom(first int64, payloads ...string) []byte {
	p := somePage(payloads...)
	for i := range p.messages {
		p.messages[i].Position = first + int64(i)
	}
	return appendPage(nil, p, 0)
}

// TestPeers_LatePages: pages of a history that is over are not delivered: not to a Follower, not to a subscription whose stream was not followed before, and
// not if they come before the history is known.
func TestPeers_LatePages(t *testing.T) {
	t.Parallel()
	const base = 1 << 40
	var peers lastListener
	begin := func() *Hub { return NewHub(nil, HubConfig{Peers: &peers}) }
	s := &Stream{id: 7, name: "orders", storage: &storage{}}

	follower := begin().Follow(s)
	peers.receive(pageFrom(21, "kept"))
	if page, _ := follower.Recent(20, 10); len(page) != 1 {
		t.Fatalf("a Follower has %+v", page)
	}
	follower.feed.enter(0)
	follower.feed.enter(base)
	peers.receive(pageFrom(22, "lost"))
	if page, _ := follower.Recent(21, 10); len(page) > 0 {
		t.Errorf("a Follower gets %+v", page)
	}

	known := begin()
	known.history = base
	f := known.follow(s, 1, 0)
	peers.receive(pageFrom(1, "lost"))
	if v := f.look(0, 0); len(v.page) > 0 {
		t.Errorf("a new subscription gets %+v", v.page)
	}

	f = begin().follow(s, 1, 0)
	peers.receive(pageFrom(1, "lost"))
	peers.receive(pageFrom(3, "lost, and early"))
	f.enter(base)
	if v := f.look(0, 0); len(v.page) > 0 || len(f.early.pages) > 0 {
		t.Errorf("a subscription gets %+v, and %d pages wait", v.page, len(f.early.pages))
	}
	peers.receive(pageFrom(base+1, "new"))
	if n := len(f.early.pages); n != 1 {
		t.Errorf("%d pages wait for a read, want the new one", n)
	}
	f.mu.Lock()
	f.dropEarly() // its timer
	f.mu.Unlock()
}
