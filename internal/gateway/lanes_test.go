package gateway_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/gateway"
	"github.com/tidewire/tidewire/websocket"
)

func serveLanes(t *testing.T, cfg gateway.LanesConfig) (*gateway.Server, string) {
	t.Helper()
	return serve(t, gateway.Config{Only: gateway.Lanes, Lanes: cfg})
}

// quiet is a configuration that pushes no dummy during a test.
var quiet = gateway.LanesConfig{DummyEvery: time.Hour}

// messages reads until it has seen enough.
func messages(t *testing.T, c socket, enough func(websocket.Message) bool) {
	t.Helper()
	c.SetReadDeadline(time.Now().Add(patience))
	for {
		all, err := c.Read()
		for _, m := range all {
			if enough(m) {
				return
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestLanes_EchoesAndPushes: messages are echoed while dummies come, and both are counted.
func TestLanes_EchoesAndPushes(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const size = 100_000
		_, addr := serveLanes(t, gateway.LanesConfig{DummySize: size, DummyEvery: time.Second})
		for _, path := range []string{"/ws", "/ws/lanes", "/ws?variant=plain"} {
			c := dial(t, "ws://"+addr+path)
			send(t, c, "one", "two", `{"type":"other"}`, `{"no":"type"}`)
			dummies := 0
			var echoes []string
			messages(t, c, func(m websocket.Message) bool {
				if len(m.Payload) == size && m.Op == websocket.OpText {
					dummies++
				} else {
					echoes = append(echoes, string(m.Payload))
				}
				return len(echoes) == 4 && dummies >= 3
			})
			if got := strings.Join(echoes, " "); got != `one two {"type":"other"} {"no":"type"}` {
				t.Errorf("%s: echoes %q", path, got)
			}
			c.Abort()
		}
		if status, _ := (client{t, addr}).do("GET", "/ws?variant=fast", ""); status != 400 {
			t.Errorf("an unknown variant: %v", status)
		}
		for _, line := range []string{"tidewire_connections 0", "tidewire_lanes_echoes_total 12", "tidewire_unsent_bytes 0"} {
			waitMetric(t, addr, line)
		}
		_, text := client{t, addr}.do("GET", "/metrics", "")
		for _, name := range []string{"tidewire_lanes_dummies_total", "tidewire_lanes_dummy_bytes_total", "tidewire_bulk_chunks_total", "tidewire_bulk_bytes_total"} {
			if !strings.Contains(text, name+" ") || strings.Contains(text, name+" 0\n") {
				t.Errorf("%s is not counted", name)
			}
		}
	})
}

// TestLanes_Credit: a client that grants credit gets no more bulk bytes than that; answers do not need credit.
func TestLanes_Credit(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const chunk = 16 << 10
		_, addr := serveLanes(t, gateway.LanesConfig{DummySize: 10 * chunk, DummyEvery: 20 * time.Millisecond, Chunk: chunk})
		c := dial(t, "ws://"+addr+"/ws")
		var chunks, answers atomic.Int64
		go func() {
			for {
				all, err := c.Read()
				for _, m := range all {
					if m.Op == websocket.OpBinary {
						chunks.Add(1)
					} else {
						answers.Add(1)
					}
				}
				if err != nil {
					return
				}
			}
		}()
		send(t, c, `{"type":"hello","chunks":true,"credit":true}`, `{"type":"credit","bytes":16384}`)
		for granted := int64(1); granted < 6; granted++ {
			send(t, c, "while it waits")
			time.Sleep(time.Second)
			if chunks.Load() != granted || answers.Load() != granted {
				t.Errorf("%d chunks and %d answers for credit of %d", chunks.Load(), answers.Load(), granted)
			}
			send(t, c, `{"type":"credit","bytes":16384}`)
		}
	})
}

// TestLanes_Settings: a wrong setting is reported, and changes nothing. With an id settings are answered.
func TestLanes_Settings(t *testing.T) {
	t.Parallel()
	_, addr := serveLanes(t, quiet)
	c := &wire{socket: dial(t, "ws://"+addr+"/ws"), t: t}
	for _, q := range []struct{ message, code string }{
		{`"type":"hello","chunks":"yes"`, "malformed"}, {`"type":"hello","credit":7`, "malformed"}, {`"type":"credit","bytes":1000`, "credit_not_offered"},
		{`"type":"chunk","stream":1,"seq":0,"last":true`, "chunks_not_offered"}, {`"type":"hello","credit":true`, ""}, {`"type":"credit","bytes":"many"`, "malformed"},
		{`"type":"credit","bytes":1e30`, "malformed"}, {`"type":"credit","bytes":0`, "invalid_credit"}, {`"type":"credit","bytes":-5`, "invalid_credit"},
		{`"type":"credit","bytes":9223372036854775807`, "invalid_credit"}, {`"type":"credit","bytes":1073741824`, ""}, {`"type":"credit","bytes":1`, "invalid_credit"},
	} {
		for _, id := range []string{"", `,"id":7`} {
			if id != "" && strings.HasSuffix(q.message, "1073741824") {
				continue // it is granted already
			}
			send(t, c.socket, "{"+q.message+id+"}", "done")
			got := ""
			if q.code != "" || id != "" {
				got = c.next()
			}
			if c.want("done"); q.code != "" && !strings.Contains(got, `"code":"`+q.code+`"`) || q.code == "" && id != "" && got != `{"id":7,"type":"ok"}` || id != "" && !strings.Contains(got, `"id":7`) {
				t.Errorf("%s%s: got %q, want %q", q.message, id, got, q.code)
			}
		}
	}
}

// TestLanes_Shutdown: a stop ends a flood with the closing handshake.
func TestLanes_Shutdown(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/ws", "/ws?variant=plain"} {
		server, addr := serveLanes(t, gateway.LanesConfig{DummySize: 1 << 20, DummyEvery: time.Millisecond})
		c := dial(t, "ws://"+addr+path)
		messages(t, c, func(websocket.Message) bool { return true })
		stopped := make(chan error, 1)
		go func() { stopped <- server.Shutdown(t.Context()) }()
		if got := closeOf(t, c); got != websocket.StatusGoingAway {
			t.Errorf("%s: closed with %d, want 1001", path, got)
		}
		c.StartClose(websocket.StatusGoingAway, "")
		if err := <-stopped; err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
}
