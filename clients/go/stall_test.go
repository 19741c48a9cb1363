package tidewire

import (
	"context"
	"encoding/json"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"
)

// deaf is a function for Options.Token that says when it is called, and then ignores its context until the end of the test.
func deaf(t *testing.T) (token func(context.Context, bool) (string, error), called chan struct{}) {
	hold, free := context.WithCancel(context.Background())
	t.Cleanup(free)
	called = make(chan struct{}, 100)
	return func(context.Context, bool) (string, error) {
		called <- struct{}{}
		<-hold.Done()
		return "", errors.New("the test is over")
	}, called
}

func TestCloseInTheCallbackOfAToken(t *testing.T) {
	var c *Client
	closed := make(chan error, 1)
	c = newFake(t).open(t, Options{Token: func(context.Context, bool) (string, error) {
		closed <- c.Close()
		return "", errors.New("closed")
	}})
	c.Stream("s").PublishAsync(testContext(t), nil)
	if err := <-closed; err != nil {
		t.Error(err)
	}
}

func TestAnAttemptDoesNotWaitForAToken(t *testing.T) {
	token, called := deaf(t)
	c, failures := hurried(t, newFake(t), Options{Token: token})
	c.within = time.Millisecond
	c.Stream("s").PublishAsync(testContext(t), nil)
	dropped(t, failures, "no token")
	<-called
	<-called
}

// TestARenewalThatTakesTooLongIsTriedAgain has first the program and then the server not answer.
func TestARenewalThatTakesTooLongIsTriedAgain(t *testing.T) {
	f := newFake(t)
	var n atomic.Int64
	c := f.open(t, Options{Token: func(ctx context.Context, _ bool) (string, error) {
		if n.Add(1) == 2 {
			<-ctx.Done()
			return "", ctx.Err()
		}
		return "t", nil
	}})
	c.within = 500 * time.Millisecond
	c.Stream("s").PublishAsync(testContext(t), nil)
	p := f.accept(t)
	p.read("publish")
	p.send(`{"type":"expiring","expires_in_ms":1000}`)
	p.read("auth")
	p.answer(p.read("auth"), "ok", nil)
}

// TestAPingDoesNotEndWhatIsBeingWritten has a server ping, and read nothing for longer than a pong may take.
func TestAPingDoesNotEndWhatIsBeingWritten(t *testing.T) {
	t.Parallel()
	f, ctx := newFake(t), testContext(t)
	f.hello.Store(`{"type":"hello","protocol":"tidewire.v1","features":[],"limits":{"message_bytes":67108864,"messages":1000}}`)
	c, failures := hurried(t, f, Options{MaxPendingBytes: 1 << 30})
	first := c.Stream("s").PublishAsync(ctx, nil)
	p := f.accept(t)
	p.answer(p.read("publish"), "ok", frame{"position": 1})
	if _, err := first.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	payload := make([]byte, 32<<20)
	for i := range payload {
		payload[i] = 'x'
	}
	sent := c.Stream("s").PublishAsync(ctx, payload)
	time.Sleep(200 * time.Millisecond) // pace: of a server that reads nothing: the client fills the buffers of the system
	p.ws.WriteControl(websocket.PingMessage, []byte("are you there"), time.Now().Add(patience))
	time.Sleep(2 * time.Second) // pace: of a server that reads nothing, for longer than a pong may take
	pongs := make(chan string, 1)
	p.ws.SetPongHandler(func(text string) error { pongs <- text; return nil })
	go func() {
		for {
			_, data, err := p.ws.ReadMessage()
			if err != nil {
				return
			}
			var f frame
			if json.Unmarshal(data, &f) == nil {
				p.answer(f, "ok", frame{"position": 2})
			}
		}
	}()
	if _, err := sent.Wait(ctx); err != nil {
		t.Error(err)
	}
	select {
	case err := <-failures:
		t.Errorf("the connection has ended: %v", err)
	case <-pongs:
	case <-ctx.Done():
		t.Error("no pong")
	}
}
