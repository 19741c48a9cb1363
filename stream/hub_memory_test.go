package stream

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"time"
)

// TestFollowers_Memory: a stream with Followers alone holds at most followerBytes, and less when all of
// them hold much. What is taken, or belongs to a stream without Followers, is not counted.
func TestFollowers_Memory(t *testing.T) {
	t.Parallel()
	hub := NewHub(nil, HubConfig{NoListen: true})
	const page, streams = 100 << 10, 40
	var followers []*Follower
	end := make(map[int32]int64)
	commit := func(id int32) {
		end[id]++
		m := Message{Position: end[id], Payload: make([]byte, page-heldOverhead)}
		hub.grown(hub.feedOf(id), tailPage{messages: []Message{m}, bytes: page}, m.Position)
	}
	for id := range int32(streams) {
		followers = append(followers, hub.Follow(&Stream{id: id}))
		for range 20 {
			commit(id)
		}
	}
	wants := func(when string, least, most int64) {
		t.Helper()
		sum := 0
		for _, f := range hub.feeds {
			if f.tail.bytes > followerBytes {
				t.Errorf("%s: a stream holds %d bytes", when, f.tail.bytes)
			}
			sum += f.tail.bytes
		}
		if got := hub.followed.Load(); got != int64(sum) || got < least || got > most {
			t.Errorf("%s: %d bytes are counted, want %d, and %d to %d", when, got, sum, least, most)
		}
	}
	wants("nothing is taken", allFollowerBytes/2, allFollowerBytes+followerBytes+streams*followerBytesMin)
	for id, f := range followers {
		if got, _ := f.Recent(end[int32(id)], 1); len(got) > 0 {
			t.Errorf("a message after the end: %v", got)
		}
	}
	wants("all is taken", 0, 0)
	for id := range int32(streams) {
		commit(id)
	}
	wants("one page each", streams*page, streams*page)
	late := hub.feedOf(0)
	for _, f := range followers {
		f.Close()
	}
	wants("all are closed", 0, 0)
	hub.grown(late, tailPage{messages: []Message{{Position: 100}}, bytes: page}, 100) // a commit that had looked it up
	wants("a late commit", 0, 0)
}

// TestFollowers_MemoryAfterSubscription: when the last subscription of a stream ends, what it has left in memory is held for Followers alone.
func TestFollowers_MemoryAfterSubscription(t *testing.T) {
	t.Parallel()
	hub := NewHub(nil, HubConfig{NoListen: true})
	s := &Stream{id: 1}
	follower := hub.Follow(s)
	defer follower.Close()
	const page = 100 << 10
	subscribed := hub.follow(s, 1, 0)
	for n := range int64(40) {
		m := Message{Position: n + 1, Payload: make([]byte, page-heldOverhead)}
		hub.grown(hub.feedOf(s.id), tailPage{messages: []Message{m}, bytes: page}, m.Position)
	}
	follower.Hinted()
	hub.leave(subscribed, 1, 0)
	if held := subscribed.tail.bytes; held > followerBytes || hub.followed.Load() != int64(held) {
		t.Errorf("%d bytes are held, and %d are counted", held, hub.followed.Load())
	}
	if got, _ := follower.Recent(39, 10); len(got) != 1 || got[0].Position != 40 {
		t.Errorf("the last message is not in memory: %v", got)
	}
	if _, ask := follower.Recent(0, 10); !ask {
		t.Error("what was evicted need not be read")
	}
}

// TestFeed_LossIsReportedOnce: a loss that is found after messages of the next history were read concerns the
// messages known before them, and counts once, also if several subscriptions find it.
func TestFeed_LossIsReportedOnce(t *testing.T) {
	t.Parallel()
	var lost int64
	f := newFeed(&Stream{name: "orders"}, &HubConfig{}, unknownHistory, func(_ *Stream, last, ghost int64) { lost += ghost - last })
	f.enter(0)
	f.told = 20
	f.enter(1 << 40)
	f.told = 1<<40 + 5
	f.foundLost(20, 15)
	f.foundLost(18, 15)
	if lost != 5 {
		t.Errorf("%d positions are reported, want 5", lost)
	}
	f.foundLost(1<<40+5, 1<<40+3) // by the next failover
	if lost != 7 {
		t.Errorf("%d positions are reported, want 2 more", lost)
	}
	f.foundLost(1<<40+4, 1<<40+3)
	if lost != 7 {
		t.Errorf("%d positions are reported, want no more", lost)
	}
}

func somePage(payloads ...string) (p tailPage) {
	for i, payload := range payloads {
		m := Message{Position: 1<<40 + int64(i), Key: payload, Payload: []byte(payload), Time: time.UnixMicro(-5)}
		p.messages = append(p.messages, m)
		p.bytes += m.held()
	}
	return p
}

// FuzzPage: what decodes is a page that encodes and decodes to the same, and has memory in proportion.
func FuzzPage(f *testing.F) {
	f.Add(appendPage(nil, tailPage{}, 0))
	f.Add(appendPage(nil, tailPage{}, 1<<62))
	f.Add(appendPage(nil, somePage("", "a", "bcd"), 0))
	f.Add([]byte{pageFormat, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 1, 1})
	f.Add([]byte{pageFormat, 1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 0, 0, 0})
	f.Fuzz(func(t *testing.T, encoded []byte) {
		p, last, err := decodePage(encoded)
		if err != nil {
			return
		}
		if len(p.messages) > len(encoded) {
			t.Fatalf("%d messages of %d bytes", len(p.messages), len(encoded))
		}
		for i, m := range p.messages {
			if m.Position < 1 || i > 0 && m.Position != p.messages[i-1].Position+1 || m.Payload == nil {
				t.Fatalf("message %d: %+v", i, m)
			}
		}
		again := appendPage(nil, p, last)
		q, lastAgain, err := decodePage(again)
		if err != nil || lastAgain != last || q.bytes != p.bytes || !bytes.Equal(appendPage(nil, q, lastAgain), again) {
			t.Fatalf("%+v, %d, %v, want %+v, %d", q, lastAgain, err, p, last)
		}
	})
}

// TestPage_Cut: no part of an encoded page decodes.
func TestPage_Cut(t *testing.T) {
	t.Parallel()
	whole := appendPage(nil, somePage("", "a", "bcd"), 0)
	for n := range whole {
		if p, _, err := decodePage(whole[:n]); err == nil {
			t.Errorf("%d of %d bytes: %+v", n, len(whole), p)
		}
	}
	if _, _, err := decodePage(append(whole, 0)); err == nil {
		t.Error("with one byte more")
	}
}

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

// TestTail_AgainstSlice extends a tail randomly, and compares its results with a
// slice of the whole stream.
func TestTail_AgainstSlice(t *testing.T) {
	t.Parallel()
	for seed := range uint64(10) {
		random := rand.New(rand.NewPCG(seed, 1))
		const limit, maxMessages, maxBytes = 4000, 10, 2000
		tl := tail{limit: limit}
		var stored []Message
		position := int64(0)
		for range 200 {
			after := tl.to
			if random.IntN(20) == 0 { // a subscription ahead of the others, which did not read this one
				after += 1 + random.Int64N(5)
				stored = append(stored, Message{Position: after})
			}
			position = after
			var p tailPage
			for range 1 + random.IntN(4) {
				position += 1 + random.Int64N(3)
				m := Message{Position: position, Payload: make([]byte, random.IntN(1000))}
				p.messages = append(p.messages, m)
				p.bytes += m.held()
			}
			stored = append(stored, p.messages...)
			tl.extend(after, p)
			checkTail(t, &tl, limit)
			if tl.to != position {
				t.Fatalf("ends at %d, want %d", tl.to, position)
			}
			for start := tl.from; start < tl.to; start++ {
				page := tl.after(start, maxMessages, maxBytes)
				wantAfter(t, stored, start, page)
				if len(page) > maxMessages {
					t.Fatalf("%d messages", len(page))
				}
			}
		}
	}
}

func checkTail(t *testing.T, tl *tail, limit int) {
	t.Helper()
	held := 0
	for _, p := range tl.pages {
		for i := range p.messages {
			held += p.messages[i].held()
		}
	}
	if held != tl.bytes || held > limit {
		t.Fatalf("holds %d bytes, says %d, limit %d", held, tl.bytes, limit)
	}
}

// wantAfter wants the page to be what comes next after start.
func wantAfter(t *testing.T, stored []Message, start int64, page []Message) {
	t.Helper()
	for len(stored) > 0 && stored[0].Position <= start {
		stored = stored[1:]
	}
	if len(page) == 0 || len(page) > len(stored) {
		t.Fatalf("%d messages after %d, %d are stored", len(page), start, len(stored))
	}
	for i := range page {
		if page[i].Position != stored[i].Position {
			t.Fatalf("after %d: position %d, want %d", start, page[i].Position, stored[i].Position)
		}
	}
}
