package room_test

import (
	"testing"

	"github.com/tidewire/tidewire/internal/room"
)

// TestPresence_Unwatch: a member that watches no more is told nothing of the room's members. When it watches again, it gets a list.
func TestPresence_Unwatch(t *testing.T) {
	t.Parallel()
	l := newLobby(t, room.Config{})
	v := l.watch(t, "ann")
	v.is(t, 1, "ann")
	l.mu.Lock()
	m := l.watching["ann"]
	l.mu.Unlock()
	m.Unwatch()
	m.Unwatch()                              // twice is once
	l.watch(t, "bob").is(t, 2, "ann", "bob") // ann would have heard of bob by now
	lists, batches := v.lists, v.batches
	m.Watch()
	if err := v.until(func() bool { return v.lists > lists }); err != nil {
		t.Fatal(err)
	}
	if v.lists != lists+1 || v.batches != batches || !v.names["bob"] {
		t.Errorf("%d lists and %d batches after %d and %d; the names %v", v.lists, v.batches, lists, batches, v.names)
	}
}

// TestPresence_OfTwoNodes: a watcher gets who is in the room on another node too, until nothing is known of that node any more.
func TestPresence_OfTwoNodes(t *testing.T) {
	t.Parallel()
	joined := newLinks()
	l, there := newLobby(t, joined.node(0)), room.NewHub(joined.node(1))
	join := func(user string) *room.Member {
		return there.Join(nil, "watched", room.JoinOptions{User: user, Hold: true})
	}
	bob := join("bob")
	v := l.watch(t, "ann")
	v.is(t, 2, "ann", "bob")
	again, ann := join("bob"), join("ann")
	v.is(t, 4, "ann", "bob")
	bob.Leave()
	v.is(t, 3, "ann", "bob")
	again.Leave()
	v.is(t, 2, "ann")
	carol := join("carol")
	v.is(t, 3, "ann", "carol")
	joined.mu.Lock()
	in := joined.inlets[0]["watched"]
	joined.mu.Unlock()
	in.Gone(1)
	v.is(t, 1, "ann")
	ann.Leave()
	carol.Leave()
	there.Wait()
}
