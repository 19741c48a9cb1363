package bench

import (
	"crypto/sha1"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/tidewire/tidewire/websocket"
)

// TestLanes_FloodOverTLS: a server that sends faster than the generator reads does not keep it from its timetable or
// its end. The socket always has more to read; over TLS the generator reads from a layer that the poller cannot see.
func TestLanes_FloodOverTLS(t *testing.T) {
	t.Parallel()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		accept := sha1.Sum([]byte(r.Header.Get("Sec-WebSocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11")) // RFC 6455, 4.2.2
		fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: %s\r\n\r\n",
			base64.StdEncoding.EncodeToString(accept[:]))
		flood(conn)
	}))
	defer server.Close()
	roots := server.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	got, err := Lanes(t.Context(), LanesConfig{
		URL: "wss" + strings.TrimPrefix(server.URL, "https"), TLS: &tls.Config{RootCAs: roots},
		Every: time.Millisecond, Requests: 20, Patience: 100 * time.Millisecond, DummySize: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	if got.Sent != 20 || got.Answered != 0 || got.Dummies == 0 || got.Broken != 0 {
		t.Errorf("%d sent, %d answered, %d dummies, %d broken", got.Sent, got.Answered, got.Dummies, got.Broken)
	}
}

// flood sends one-byte messages until the client is gone.
func flood(conn net.Conn) {
	var frames []byte
	for range 10_000 {
		frames = websocket.AppendHeader(frames, websocket.Header{Fin: true, Op: websocket.OpText, Length: 1})
		frames = append(frames, 'd')
	}
	for {
		if _, err := conn.Write(frames); err != nil {
			return
		}
	}
}
