package cluster

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/relay/relaytest"
)

// deaf is a room that counts.
type deaf struct {
	mute
	pub, missed int
}

func (d *deaf) Publish(b []byte) { d.pub++ }
func (d *deaf) Missed(n int)     { d.missed += n }

// TestNode_RoomOfTheSlotStays: a room that has ended and begun again goes on after another room of its slot has ended twice: a
// minute later its batches still come.
func TestNode_RoomOfTheSlotStays(t *testing.T) {
	t.Parallel()
	other := ""
	for i := 0; ; i++ {
		other = "r" + time.Duration(i).String()
		if other != "lobby" && slotOf(other) == slotOf("lobby") {
			break
		}
	}
	now := time.Unix(1000, 0)
	net := relaytest.New(2)
	clock := func() time.Time { return now }
	a, _ := newNode(1, net.Node(0), clock)
	b, _ := newNode(2, net.Node(1), clock)
	got := &deaf{}
	a.connect(other, &deaf{}).Close()
	a.connect(other, got)
	from := b.connect(other, &deaf{})
	for range 2 {
		a.connect("lobby", &deaf{}).Close()
	}
	step := func() {
		for net.Step(newHistory(1, 2).random) {
		}
	}
	step()
	for range 63 {
		now = now.Add(time.Second)
		a.beat()
		b.beat()
		step()
	}
	from.Send(1, 1, []byte{0x81, 1, 'x'})
	step()
	now = now.Add(time.Second)
	a.beat()
	b.beat()
	step()
	if got.pub != 1 {
		t.Fatalf("room %q got %d batches, missed told %d", other, got.pub, got.missed)
	}
}

// TestNode_StoppedAfterTheJoin: a node that is stopped after a join does not tell of a gap before the join.
func TestNode_StoppedAfterTheJoin(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	net := relaytest.New(2)
	clock := func() time.Time { return now }
	a, _ := newNode(1, net.Node(0), clock)
	b, _ := newNode(2, net.Node(1), clock)
	r := newHistory(1, 2).random
	step := func() {
		for net.Step(r) {
		}
	}
	step()
	from := a.connect("lobby", &deaf{})
	from.Send(1, 5, []byte("\x81\x01x\x81\x01x\x81\x01x\x81\x01x\x81\x01x"))
	now = now.Add(500 * time.Millisecond)
	got := &deaf{}
	b.connect("lobby", got)
	step()
	from.Send(6, 1, []byte("\x81\x01x"))
	now = now.Add(4 * time.Second) // b is stopped: the batch waits in its kernel
	step()
	if got.missed != 0 {
		t.Errorf("told %d missing, which were sent before the member was there; got %d", got.missed, got.pub)
	}
}

// TestNode_OlderRoom: what a room that is older on another node sends there for the first time in a cut is told to be missing.
func TestNode_OlderRoom(t *testing.T) {
	t.Parallel()
	h := newHistory(1, 2)
	beats := func(n int) {
		for range n {
			h.beat()
			h.quiet()
		}
	}
	h.open(0)
	beats(5)
	h.send(0, 2) // before anybody is on the other node
	beats(20)
	h.open(1)
	beats(30)
	h.network.Cut(0, 1, h.random)
	h.send(0, 3)
	beats(10)
	h.network.Heal(0, 1)
	beats(10)
	if h.room[1].told != 3 {
		t.Errorf("told %d missing, want 3", h.room[1].told)
	}
}

// closable is a relay that can be closed.
type closable struct {
	*relaytest.Node
	closed bool
}

func (c *closable) Listen(topic string, receive func([]byte)) (stop func(), err error) {
	if c.closed {
		return nil, errors.New("the relay is closed")
	}
	return c.Node.Listen(topic, receive)
}

// TestNode_RoomAfterTheEnd: a room may begin and end on a node whose relay is closed. It is kept for a while after its last end.
func TestNode_RoomAfterTheEnd(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	relay := &closable{Node: relaytest.New(1).Node(0)}
	n, err := newNode(1, relay, func() time.Time { return now })
	if err != nil {
		t.Fatal(err)
	}
	relay.closed = true
	for range 2 {
		n.connect("lobby", &deaf{}).Close()
		now = now.Add(keepLink/2 + time.Second)
		n.beat()
	}
	if n.find("lobby") == nil {
		t.Error("a room is forgotten too early, because it had ended before")
	}
	now = now.Add(keepLink / 2)
	n.beat()
	if len(n.slots) > 0 {
		t.Error("it listens to a room that has ended")
	}
}

// TestNode_Notes: each node gets the notes of the other, and its last one.
func TestNode_Notes(t *testing.T) {
	t.Parallel()
	h := newHistory(1, 2)
	got := make([]string, 2)
	for i, n := range h.nodes {
		n.Exchange(Notes{
			Write: func() []byte { return fmt.Append(nil, "note of ", i) },
			Last:  func() []byte { return fmt.Append(nil, "last note of ", i) },
			Read:  func(node uint64, note []byte) { got[i] = fmt.Sprint(node == h.nodes[1-i].id, " ", string(note)) },
		})
	}
	want := func(first, second string) {
		t.Helper()
		if got[0] != first || got[1] != second {
			t.Errorf("got %q", got)
		}
	}
	for range 3 {
		h.beat()
		h.quiet()
	}
	want("true note of 1", "true note of 0")
	h.nodes[1].sendLastNote()
	h.quiet()
	want("true last note of 1", "true note of 0")
	if why := h.check(); why != "" {
		t.Error(why)
	}
}
