package gateway_test

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/gateway"
	"github.com/tidewire/tidewire/websocket"
)

// silentPeer does the handshake and then sends nothing. It returns the code of
// the Close frame that it receives.
func silentPeer(t *testing.T, addr, path string) websocket.StatusCode {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(patience))
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n", path)
	reader := bufio.NewReader(conn)
	if resp, err := http.ReadResponse(reader, nil); err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("%s: %v", path, err)
	}
	var got []byte
	for {
		one, err := reader.ReadByte()
		if got = append(got, one); err != nil {
			t.Fatalf("%s: ended with %v and no Close frame after %q", path, err, got)
		}
		h, size, _ := websocket.ParseHeader(got)
		if size == 0 || len(got) < size+int(h.Length) {
			continue
		}
		if h.Op == websocket.OpClose && h.Length >= 2 {
			return websocket.StatusCode(binary.BigEndian.Uint16(got[size:]))
		}
		got = got[:0]
	}
}

// TestHeartbeat_PongsOfWebSocketCount: a client that answers only WebSocket pings,
// and no JSON pings, stays longer than a silent one that connects after it.
func TestHeartbeat_PongsOfWebSocketCount(t *testing.T) {
	t.Parallel()
	const timeout = 5 * time.Second // far more than a busy machine keeps a pong waiting
	for _, path := range []string{"/ws", "/ws/chat"} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			_, addr := serve(t, gateway.Config{Engine: engine.Engine{Ingest: (&memory{}).source}, Chat: gateway.ChatConfig{PingInterval: timeout / 30, PongTimeout: timeout}})
			answering := dial(t, "ws://"+addr+path)
			answering.SetReadDeadline(time.Now().Add(patience))
			ended := make(chan error, 1)
			ponged := make(chan struct{})
			go func() {
				for {
					messages, err := answering.Read() // which answers pings
					for _, m := range messages {
						if string(m.Payload) == `{"ts":"still here","type":"pong"}` {
							close(ponged)
						}
					}
					if err != nil {
						ended <- err
						return
					}
				}
			}()
			if code := silentPeer(t, addr, path); code != websocket.StatusPolicyViolation {
				t.Errorf("the silent client was closed with %d, want 1008", code)
			}
			answering.Queue(websocket.OpText, []byte(`{"type":"ping","ts":"still here"}`))
			answering.Flush()
			select {
			case <-ponged:
				answering.Abort()
				<-ended
			case err := <-ended:
				t.Errorf("the client that answers pings ended with %v", err)
			}
		})
	}
}
