package gateway_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/gateway"
	"github.com/tidewire/tidewire/websocket"
)

const upgradeHeaders = "Host: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"

// TestUpgrade_WithABodyIsRefused: bytes that a proxy takes for the body must not be read as frames, nor as the next request.
func TestUpgrade_WithABodyIsRefused(t *testing.T) {
	t.Parallel()
	store := &memory{}
	_, addr := serve(t, gateway.Config{Engine: engine.Engine{Ingest: store.source}})
	frame := string(websocket.AppendMaskedFrame(nil, websocket.OpText, [4]byte{1, 2, 3, 4}, []byte("smuggled")))
	for _, path := range []string{"/ws", "/ws/chat", "/ws/ingest", "/ws/lanes"} {
		for _, rest := range []string{
			fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(frame), frame),
			fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(frame), frame),
			"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
			fmt.Sprintf("Content-Length: %d\r\n\r\n", len(frame)), // which comes later, or never
		} {
			conn, err := net.Dial("tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			conn.SetDeadline(time.Now().Add(patience))
			io.WriteString(conn, "GET "+path+" HTTP/1.1\r\n"+upgradeHeaders+rest)
			reader := bufio.NewReader(conn)
			resp, err := http.ReadResponse(reader, nil)
			if err != nil {
				t.Fatalf("%s, %.40q: %v", path, rest, err)
			}
			io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			if resp.StatusCode != http.StatusBadRequest {
				t.Errorf("%s, %.40q: answered with %d, want 400", path, rest, resp.StatusCode)
			}
			conn.(*net.TCPConn).CloseWrite()                  // net/http waits for the rest of a body
			if more, _ := io.ReadAll(reader); len(more) > 0 { // to the end: the connection is closed
				t.Errorf("%s, %.40q: after the answer came %q", path, rest, more)
			}
			conn.Close()
		}
	}
	if got := store.content(); len(got) > 0 {
		t.Errorf("stored %q", got)
	}
}
