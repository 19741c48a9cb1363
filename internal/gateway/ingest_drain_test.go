package gateway_test

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/gateway"
	"github.com/tidewire/tidewire/websocket"
)

// gated is a store that accepts nothing until it is opened.
type gated struct {
	engine.Source
	entered func()
	open    chan struct{}
}

func (g *gated) Submit(ctx context.Context, payloads [][]byte) error {
	g.entered()
	<-g.open
	return g.Source.Submit(ctx, payloads)
}

// TestIngest_StopWhileTheStoreIsSlow: the time that a peer has to answer the Close frame
// does not run while the store keeps the server from reading what it had sent.
func TestIngest_StopWhileTheStoreIsSlow(t *testing.T) {
	t.Parallel()
	store := &memory{}
	entered, open := make(chan struct{}), make(chan struct{})
	server, addr := serve(t, gateway.Config{
		Engine: engine.Engine{Ingest: func(f func(uint64)) engine.Source {
			return &gated{store.source(f), sync.OnceFunc(func() { close(entered) }), open}
		}},
		DrainTimeout: 2 * time.Second,
	})
	c := dial(t, "ws://"+addr+"/ws/ingest")
	const sent = 50
	for range sent { // more than the server reads at a time
		if err := errors.Join(c.Queue(websocket.OpText, bytes.Repeat([]byte("x"), 10_000)), c.Flush()); err != nil {
			t.Fatal(err)
		}
	}
	<-entered
	stopped := make(chan error, 1)
	go func() { stopped <- server.Shutdown(t.Context()) }()
	var closed *websocket.CloseError
	if _, err := c.Read(); !errors.As(err, &closed) || closed.Code != websocket.StatusGoingAway {
		t.Fatalf("got %v, want code 1001", err)
	}
	go c.Close(websocket.StatusGoingAway, "")
	time.Sleep(2500 * time.Millisecond) // longer than the peer has
	close(open)
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	if n := len(store.content()); n != sent {
		t.Errorf("%d messages stored, want the %d that were sent before the Close frame was answered", n, sent)
	}
}
