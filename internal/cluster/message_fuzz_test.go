package cluster

import (
	"testing"

	"github.com/tidewire/tidewire/internal/relay/relaytest"
	"github.com/tidewire/tidewire/internal/room"
	"github.com/tidewire/tidewire/websocket"
)

// recorder is a relay that keeps what is published.
type recorder struct{ messages [][]byte }

func (r *recorder) Publish(_ string, message []byte) error {
	r.messages = append(r.messages, append([]byte(nil), message...))
	return nil
}

func (r *recorder) Listen(string, func([]byte)) (stop func(), err error) { return func() {}, nil }

// samples are one message of each kind, from node 1.
func samples(f *testing.F) [][]byte {
	f.Helper()
	r := &recorder{}
	n, err := NewNode(1, r)
	if err != nil {
		f.Fatal(err)
	}
	l := n.connect("lobby", &session{h: &history{}, got: make([][]int, 2)})
	l.Send(1, 1, websocket.AppendFrame(nil, websocket.OpText, []byte("1:1")))
	l.Watch(true)
	n.askPresence(false)
	l.Present(room.Presence{Whole: true, Count: 2, Joined: []string{"ann", "bob"}, Left: []string{"carol"}})
	n.ask(2, 7)
	n.asked(2, 8, []byte("question"))
	n.beat()
	n.relay.Publish("", n.aside(kindAnswered, 7))
	n.relay.Publish("", append(n.aside(kindAsk, 9), "question"...))
	n.relay.Publish("", append(n.aside(kindAnswer, 9), "answer"...))
	return r.messages
}

// FuzzMessage: no message of another node breaks this one, on whatever topic it comes.
func FuzzMessage(f *testing.F) {
	for _, sample := range samples(f) {
		f.Add(sample)
	}
	f.Fuzz(func(t *testing.T, message []byte) {
		n, err := NewNode(2, relaytest.New(1).Node(0))
		if err != nil {
			t.Fatal(err)
		}
		n.connect("lobby", &frameCheck{t: t})
		n.receive(message)
		n.receive(message)
		n.decoded(n.hear)(message)
		n.decoded(n.toThis)(message)
		n.beat()
	})
}

// frameCheck is a room that takes whole frames alone.
type frameCheck struct {
	mute
	t *testing.T
}

func (c *frameCheck) Publish(frames []byte) {
	for count := range len(frames) {
		if whole(frames, count+1) {
			return
		}
	}
	c.t.Errorf("%d bytes are no whole frames", len(frames))
}

func (c *frameCheck) Missed(n int) {
	if n <= 0 {
		c.t.Errorf("%d frames are missing", n)
	}
}
