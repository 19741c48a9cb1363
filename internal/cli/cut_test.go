package cli_test

import (
	"fmt"
	"net"
	"net/url"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/cli"
	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/websocket"
)

// TestServe_ConnectionCutMidFrame ends a connection in the middle of a frame,
// without a handshake: every strategy stores all complete messages before it,
// and the server continues.
func TestServe_ConnectionCutMidFrame(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"naive", "buffered", "bulk", "copy", "auto"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			db := pgtest.Open(t)
			p := serve(t, "--only", "ingest", "--mode", mode, "--flush", "10ms", "--database-url", db.URL)
			conn, err := net.Dial("tcp", p.addr)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if _, err := websocket.ClientHandshake(conn, &url.URL{Scheme: "ws", Host: p.addr, Path: "/ws"}); err != nil {
				t.Fatal(err)
			}
			const whole = 50
			var frames []byte
			for i := range whole + 1 {
				frames = websocket.AppendMaskedFrame(frames, websocket.OpBinary, [4]byte{9, 8, 7, 6}, fmt.Appendf(nil, "message %d", i))
			}
			if _, err := conn.Write(frames[:len(frames)-3]); err != nil {
				t.Fatal(err)
			}
			conn.Close()
			for deadline := time.Now().Add(20 * time.Second); rows(t, db.URL, countSQL) < whole && time.Now().Before(deadline); {
				time.Sleep(5 * time.Millisecond)
			}
			if code := p.stop(t); code != cli.ExitOK {
				t.Errorf("exit code %d", code)
			}
			if n, distinct := rows(t, db.URL, countSQL), rows(t, db.URL, distinctSQL); n != whole || distinct != whole {
				t.Errorf("%d rows, %d distinct, want %d", n, distinct, whole)
			}
		})
	}
}
