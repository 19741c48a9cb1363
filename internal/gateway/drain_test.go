package gateway_test

import (
	"context"
	"errors"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tidewire/tidewire/websocket"
)

var comeBack = regexp.MustCompile(`^the server is shutting down; retry_after_ms=(\d+)$`)

// ready is the status of /readyz.
func ready(t *testing.T, addr string) int {
	t.Helper()
	r, err := http.Get("http://" + addr + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	r.Body.Close()
	return r.StatusCode
}

// TestDrain: connections are closed one after another, each is told when to come back, requests are answered meanwhile, and no new
// connection is let in.
func TestDrain(t *testing.T) {
	t.Parallel()
	_, _, server, addr := serveAll(t)
	const clients = 10
	closed := make(chan *websocket.CloseError, clients)
	for i := range clients {
		w := connect(t, addr)
		w.ask(`{"id":1,"type":"join","room":"a"}`, `{"id":1,"type":"ok"}`)
		go func() {
			w.SetReadDeadline(time.Now().Add(patience))
			_, err := read(w.Conn)
			left, ok := errors.AsType[*websocket.CloseError](err)
			if !ok {
				t.Errorf("client %d: %v", i, err)
				left = &websocket.CloseError{}
			}
			w.Close(websocket.StatusGoingAway, "")
			closed <- left
		}()
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan struct{})
	go func() { server.Drain(ctx, time.Hour); close(done) }()
	waitFor(t, func() bool { return ready(t, addr) == 503 }, "the drain does not begin")
	status, body := client{t, addr}.do("GET", "/ws", "", "Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Version", "13", "Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==")
	if status != 503 || !strings.Contains(body, `"code":"stopping"`) || !strings.Contains(body, `"retryable":true,"retry_after_ms":`) {
		t.Errorf("a new connection: %d %s", status, body)
	}
	if status, _ := (client{t, addr}).do("GET", "/v1/streams", ""); status != 200 {
		t.Errorf("a request during the drain: %d", status)
	}
	if n := len(closed); n > 1 {
		t.Errorf("%d connections are closed, want one, since the others have most of an hour", n)
	}
	cancel()
	<-done
	server.Drain(context.Background(), 50*time.Millisecond)
	for range clients {
		left := <-closed
		found := comeBack.FindStringSubmatch(left.Reason)
		if left.Code != websocket.StatusGoingAway || found == nil {
			t.Errorf("closed with %d %q", left.Code, left.Reason)
			continue
		}
		if ms, err := strconv.Atoi(found[1]); err != nil || ms >= 1000 {
			t.Errorf("told to come back after %s ms", found[1])
		}
	}
}

// TestDrain_Waits: a drain has its whole time for a client whose answer is not there yet when its turn comes.
func TestDrain_Waits(t *testing.T) {
	t.Parallel()
	streams, _, server, addr := serveAll(t)
	streams.hold(true)
	w := connect(t, addr)
	send(t, w.Conn, `{"id":1,"type":"publish","stream":"orders","payload":"x"}`)
	waitFor(t, streams.waits, "the message was not submitted")
	done := make(chan struct{})
	go func() { server.Drain(context.Background(), time.Hour); close(done) }()
	waitFor(t, func() bool { return ready(t, addr) == 503 }, "the drain does not begin")
	select {
	case <-done:
		t.Error("the drain has ended before its connection")
	case <-time.After(100 * time.Millisecond): // for a drain that does not wait
	}
	streams.hold(false)
	if answer := w.next(); !strings.HasPrefix(answer, `{"type":"ok","id":1,`) {
		t.Errorf("got %s", answer)
	}
	if got := closeOf(w); got != websocket.StatusGoingAway {
		t.Errorf("closed with %d", got)
	}
	w.Close(websocket.StatusGoingAway, "")
	<-done
}
