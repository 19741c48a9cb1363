package stream

import (
	"testing"
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
