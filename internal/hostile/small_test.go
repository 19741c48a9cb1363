package hostile

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/websocket"
)

// TestHostile_SmallServer: a server with the minimum memory serves many clients
// with small messages, and rejects or closes none of them.
func TestHostile_SmallServer(t *testing.T) {
	if testing.Short() || os.Getenv("DURATION") != "" {
		t.Skip("builds a program")
	}
	const clients, requests, inFlight = 50, 200, 20
	s := startServer(t, plainServer(t), pgtest.Open(t).URL, nil, "--max-memory", "64MiB")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	w := &world{t: t, giveUp: ctx, faults: make(map[string]*fault)}
	w.begin(s.addr)
	defer w.report()
	var made any
	if !w.request("preparer", "POST", "/v1/streams/small", strings.NewReader("{}"), &made) {
		t.Fatal("cannot make the stream")
	}
	var publishing sync.WaitGroup
	for range clients {
		publishing.Go(func() { publishSmall(ctx, w, requests, inFlight) })
	}
	publishing.Wait()
	if err := s.stop(false); err != nil {
		t.Error(err)
	}
}

// publishSmall publishes that many messages on one connection, and expects each to be answered with
// ok.
func publishSmall(ctx context.Context, w *world, requests, inFlight int) {
	c, err := websocket.Dial(ctx, "ws://"+w.current().addr+"/ws", websocket.Config{})
	if err != nil {
		w.fault("small client", "connect", "%v", err)
		return
	}
	defer c.Abort()
	sent, answered := 0, 0
	publish := func() {
		if sent < requests {
			sent++
			c.Queue(websocket.OpText, fmt.Appendf(nil, `{"type":"publish","stream":"small","payload":"%064d","id":%d}`, sent, sent))
		}
	}
	for range inFlight {
		publish()
	}
	for c.Flush(); answered < requests; c.Flush() {
		raws, err := c.Read()
		for _, raw := range raws {
			if answered++; !strings.Contains(string(raw.Payload), `"type":"ok"`) {
				w.fault("small client", "refused", "%s", raw.Payload)
			}
			publish()
		}
		if err != nil {
			w.fault("small client", "connection lost", "after %d of %d answers: %v", answered, requests, err)
			return
		}
	}
	c.Close(websocket.StatusNormal, "")
}
