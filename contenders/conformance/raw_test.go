package conformance

import (
	"net"
	"net/url"
	"testing"
	"time"

	"github.com/tidewire/tidewire/websocket"
)

// rawClient sends hand-made frames, and never reads.
type rawClient struct {
	t    *testing.T
	conn net.Conn
}

func dialRaw(t *testing.T, s *server) *rawClient {
	t.Helper()
	u, err := url.Parse(s.url)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.DialTimeout("tcp", u.Host, patience)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(patience))
	if _, err := websocket.ClientHandshake(conn, u); err != nil {
		t.Fatal(err)
	}
	conn.SetDeadline(time.Time{})
	return &rawClient{t, conn}
}

func (r *rawClient) write(fin bool, op websocket.Opcode, payload string) {
	r.t.Helper()
	key := [4]byte{0x12, 0x34, 0x56, 0x78}
	frame := websocket.AppendHeader(nil, websocket.Header{Fin: fin, Op: op, Masked: true, Key: key, Length: int64(len(payload))})
	start := len(frame)
	frame = append(frame, payload...)
	websocket.Mask(frame[start:], key, 0)
	if _, err := r.conn.Write(frame); err != nil {
		r.t.Fatal(err)
	}
}
