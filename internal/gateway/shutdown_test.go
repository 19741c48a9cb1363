package gateway_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/testkit"
	"github.com/tidewire/tidewire/websocket"
)

// TestDrain: connections are closed one after another, each gets the time to come back, requests are answered meanwhile, and no new
// connection is let in.
func TestDrain(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		_, _, server, addr := serveAll(t)
		const clients = 10
		ended := make(chan error, clients)
		for range clients {
			w := connect(t, addr)
			w.ask(`{"id":1,"type":"join","room":"a"}`, `{"id":1,"type":"ok"}`)
			go func() {
				_, err := w.Read()
				w.StartClose(websocket.StatusGoingAway, "")
				ended <- err
			}()
		}
		began := time.Now()
		done := make(chan struct{})
		go func() { server.Drain(t.Context(), 10*time.Second); close(done) }()
		stopping(t, addr)
		c := client{t, addr}
		status, body := c.do("GET", "/ws", "", "Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Version", "13", "Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==")
		if status != 503 || !strings.Contains(body, `"code":"stopping"`) || !strings.Contains(body, `"retryable":true,"retry_after_ms":`) {
			t.Errorf("a new connection: %d %s", status, body)
		}
		if status, _ := c.do("GET", "/v1/streams", ""); status != 200 {
			t.Errorf("a request during the drain: %d", status)
		}
		for n := range clients {
			err := <-ended
			var ms int
			if _, scan := fmt.Sscanf(err.Error(), "websocket: peer closed with 1001: the server is shutting down; retry_after_ms=%d", &ms); !isClose(err, websocket.StatusGoingAway) || scan != nil || ms >= 1000 {
				t.Errorf("closed with %v (%v)", err, scan)
			}
			if took := time.Since(began); took < time.Duration(n)*time.Second || took > time.Duration(n)*time.Second+500*time.Millisecond {
				t.Errorf("connection %d is closed after %v", n, took)
			}
		}
		<-done
	})
}

// TestDrain_Waits: a drain has its whole time for a client whose answer is not there yet when its turn comes.
func TestDrain_Waits(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		streams, _, server, addr := serveAll(t)
		streams.hold(true)
		w := connect(t, addr)
		send(t, w.socket, `{"id":1,"type":"publish","stream":"orders","payload":"x"}`)
		testkit.Eventually(t, "it is published", streams.waits)
		done := make(chan struct{})
		go func() { server.Drain(t.Context(), time.Minute); close(done) }()
		time.Sleep(59 * time.Second)
		select {
		case <-done:
			t.Error("the drain has ended before its connection")
		default:
		}
		streams.hold(false)
		if answer := w.next(); !strings.HasPrefix(answer, `{"type":"ok","id":1,`) {
			t.Errorf("got %s", answer)
		}
		if got := closeOf(t, w); got != websocket.StatusGoingAway {
			t.Errorf("closed with %d", got)
		}
		w.StartClose(websocket.StatusGoingAway, "")
		<-done
	})
}
