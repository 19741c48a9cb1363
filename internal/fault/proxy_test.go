package fault

import (
	"testing"
	"time"
)

func TestProxyPassesHalfCloses(t *testing.T) {
	f := newFixture(t)
	client, target := f.pair()
	send(t, client, "request")
	ok(t, client.CloseWrite())
	receive(t, target, "request")
	isEnd(t, target)
	pass(t, target, client, "answer")
	ok(t, target.CloseWrite())
	isEnd(t, client)
}

// TestProxyDelays: with a delay of an hour nothing arrives, and all is taken: more than the kernel's buffers hold.
func TestProxyDelays(t *testing.T) {
	f := newFixture(t)
	client, target := f.pair()
	f.Delay(time.Hour)
	_, err := client.Write(make([]byte, 32<<20))
	ok(t, err)
	send(t, target, "answer")
	f.awaitQueued(FromTarget, len("answer"))
	f.Delay(0)
	send(t, client, "not before the rest")
	send(t, target, "nor this")
	f.awaitQueued(FromTarget, len("answer"+"nor this"))
	f.Reset()
	isReset(t, client)
	isReset(t, target)
	f.pair()
}

func TestProxyStalls(t *testing.T) {
	f := newFixture(t)
	client, target := f.pair()
	f.Stall()
	send(t, client, "request")
	send(t, target, "answer")
	ok(t, client.CloseWrite())
	f.Resume()
	receive(t, target, "request")
	receive(t, client, "answer")
	isEnd(t, target)

	client, target = f.pair()
	f.Stall()
	send(t, client, "request")
	send(t, target, "answer")
	f.Reset()
	isReset(t, client)
	isReset(t, target)
}

func TestProxyRefuses(t *testing.T) {
	f := newFixture(t)
	client, target := f.pair()
	f.Refuse(true)
	for range 3 {
		f.dialInVain()
	}
	pass(t, client, target, "still there")
	f.Refuse(false)
	f.pair()
}
