package gateway_test

import (
	"encoding/binary"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/gateway"
	"github.com/tidewire/tidewire/websocket"
)

func serveLanes(t *testing.T, cfg gateway.LanesConfig) string {
	t.Helper()
	_, addr := serve(t, gateway.Config{Only: gateway.Lanes, Lanes: cfg})
	return addr
}

// quiet is a configuration that pushes no dummy during a test.
var quiet = gateway.LanesConfig{DummyEvery: time.Hour}

func TestLanes_EchoesAndPushes(t *testing.T) {
	t.Parallel()
	addr := serveLanes(t, gateway.LanesConfig{DummySize: 300 << 10, DummyEvery: time.Millisecond})
	for _, path := range []string{"/ws", "/ws/lanes", "/ws?variant=plain"} {
		c := dial(t, "ws://"+addr+path)
		send(t, c, "one", "two", `{"type":"other"}`, `{"no":"type"}`)
		dummies := 0
		var echoes []string
		for len(echoes) < 4 || dummies < 3 {
			messages, err := c.Read()
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range messages {
				switch {
				case len(m.Payload) < 100:
					echoes = append(echoes, string(m.Payload))
				case len(m.Payload) == 300<<10 && m.Op == websocket.OpText:
					dummies++
				default:
					t.Fatalf("%v of %d bytes", m.Op, len(m.Payload))
				}
			}
		}
		if got := strings.Join(echoes, " "); got != `one two {"type":"other"} {"no":"type"}` {
			t.Errorf("%s: echoes %q", path, got)
		}
		c.Abort()
	}
	resp, err := http.Get("http://" + addr + "/ws?variant=fast")
	if err != nil {
		t.Fatal(err)
	}
	defer http.DefaultClient.CloseIdleConnections()
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusBadRequest {
		t.Errorf("an unknown variant: %v", resp.Status)
	}
}

// TestLanes_Chunks: the client declares that it reassembles chunks.
func TestLanes_Chunks(t *testing.T) {
	t.Parallel()
	addr := serveLanes(t, gateway.LanesConfig{DummySize: 100_000, DummyEvery: time.Millisecond, Chunk: 16 << 10})
	c := dial(t, "ws://"+addr+"/ws")
	send(t, c, `{"type":"hello","chunks":true}`)
	messages, size, seq := 0, 0, uint32(0)
	for messages < 3 {
		batch, err := c.Read()
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range batch {
			p := m.Payload
			if m.Op == websocket.OpText { // a dummy from before the hello
				continue
			}
			if len(p) < websocket.ChunkHeader || p[0] != 1 || p[1]&websocket.ChunkText == 0 || binary.BigEndian.Uint32(p[8:]) != seq {
				t.Fatalf("chunk header % x, want number %d", p[:min(len(p), websocket.ChunkHeader)], seq)
			}
			seq++
			if size += len(p) - websocket.ChunkHeader; p[1]&websocket.ChunkLast != 0 {
				if size != 100_000 || seq != 7 {
					t.Errorf("%d bytes in %d chunks", size, seq)
				}
				messages, size, seq = messages+1, 0, 0
			}
		}
	}
}

func TestLanes_BadSettingsAreTold(t *testing.T) {
	t.Parallel()
	addr := serveLanes(t, quiet)
	c := dial(t, "ws://"+addr+"/ws")
	for _, q := range []struct{ message, code string }{
		{`{"type":"hello","chunks":"yes"}`, "malformed"},
		{`{"type":"hello","credit":7}`, "malformed"},
		{`{"type":"credit","bytes":1000}`, "credit_not_offered"},
		{`{"type":"chunk","stream":1,"seq":0,"last":true}`, "chunks_not_offered"},
		{`{"type":"hello","credit":true}`, ""},
		{`{"type":"credit","bytes":"many"}`, "malformed"},
		{`{"type":"credit","bytes":1e30}`, "malformed"},
		{`{"type":"credit","bytes":0}`, "invalid_credit"},
		{`{"type":"credit","bytes":-5}`, "invalid_credit"},
		{`{"type":"credit","bytes":9223372036854775807}`, "invalid_credit"},
		{`{"type":"credit","bytes":1073741824}`, ""},
		{`{"type":"credit","bytes":1}`, "invalid_credit"},
	} {
		send(t, c, q.message, "done")
		messages, err := c.Read()
		if err != nil {
			t.Fatal(err)
		}
		got := string(messages[0].Payload)
		if q.code == "" && (got != "done" || len(messages) != 1) || q.code != "" && !strings.Contains(got, `"code":"`+q.code+`"`) {
			t.Errorf("%s: got %q, want %q", q.message, got, q.code)
		}
		if q.code != "" && len(messages) == 1 {
			expect(t, c, "done")
		}
	}
}

// TestLanes_SettingsWithAnID: settings with an ID are answered, like all
// requests.
func TestLanes_SettingsWithAnID(t *testing.T) {
	t.Parallel()
	addr := serveLanes(t, quiet)
	c := dial(t, "ws://"+addr+"/ws")
	for _, q := range []struct{ message, want string }{
		{`{"type":"hello","credit":true,"id":1}`, `{"id":1,"type":"ok"}`},
		{`{"type":"credit","bytes":1000,"id":"b"}`, `{"id":"b","type":"ok"}`},
		{`{"type":"credit","bytes":0,"id":3}`, `{"code":"invalid_credit","id":3,"message":"credit: want 1 byte or more, and no more than 1 GiB unused","retryable":false,"type":"error"}`},
		{`{"type":"other","id":4}`, `{"type":"other","id":4}`},
	} {
		send(t, c, q.message)
		expect(t, c, q.want)
	}
}

// TestLanes_NeverRead: a client that never reads is closed with a reason, and
// few bytes are held for it meanwhile.
func TestLanes_NeverRead(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/ws", "/ws?variant=plain"} {
		addr := serveLanes(t, gateway.LanesConfig{DummyEvery: time.Millisecond, LagTimeout: 200 * time.Millisecond})
		c := dial(t, "ws://"+addr+path)
		waitMetric(t, addr, "tidewire_connections_opened_total 1") // it is counted after the handshake
		waitMetric(t, addr, "tidewire_connections 0")
		c.SetReadDeadline(time.Now().Add(patience))
		var err error
		for err == nil {
			_, err = c.Read()
		}
		var closed *websocket.CloseError
		if path == "/ws" && (!errors.As(err, &closed) || closed.Code != websocket.StatusPolicyViolation || closed.Reason != "reads too slowly") {
			t.Errorf("%s: ended with %v", path, err)
		}
	}
}
