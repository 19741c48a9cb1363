package gateway_test

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"testing"
)

// TestAttack_AnnouncedBody: a body that is announced as too large is refused before any of it has come, and the server does not ask for it.
func TestAttack_AnnouncedBody(t *testing.T) {
	t.Parallel()
	_, _, _, addr := serveAll(t)
	for _, size := range []int64{300 << 10, 9_999_999_999_999} {
		for _, header := range []string{"", "Expect: 100-continue\r\n"} {
			conn, err := net.Dial("tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			fmt.Fprintf(conn, "POST /v1/streams/orders/messages HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\n%sContent-Length: %d\r\n\r\n", addr, header, size)
			answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatal(err)
			}
			if answer.StatusCode != http.StatusRequestEntityTooLarge || !answer.Close {
				t.Errorf("%d bytes announced, with %q: got %s, close %v: want 413, and the end of the connection", size, header, answer.Status, answer.Close)
			}
		}
	}
}
