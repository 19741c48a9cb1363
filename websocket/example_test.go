package websocket_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/tidewire/tidewire/websocket"
)

// An echo server: one read, any number of messages, one write.
func Example() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, err := websocket.Upgrade(w, r, websocket.Config{MaxMessage: 64 << 10})
		if err != nil {
			return // answered
		}
		go func() { // the handler returns, so that the HTTP server's buffers are released
			defer conn.Close(websocket.StatusNormal, "")
			for {
				messages, err := conn.Read()
				if err != nil {
					return
				}
				for _, m := range messages {
					if err := conn.Queue(m.Op, m.Payload); err != nil {
						return
					}
				}
			}
		}()
	}))
	defer server.Close()

	url := "ws" + strings.TrimPrefix(server.URL, "http")
	conn, err := websocket.Dial(context.Background(), url, websocket.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = conn.Queue(websocket.OpText, []byte("hello")) // Read returns an error, too
	messages, err := conn.Read()
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%s\n", messages[0].Payload)
	fmt.Println(conn.Close(websocket.StatusNormal, "done"))
	// Output:
	// hello
	// <nil>
}

// A room encodes a message once for all its members.
func ExampleConn_WriteShared() {
	var members []*websocket.Conn
	shared := websocket.AppendFrame(nil, websocket.OpText, []byte(`{"type":"message"}`))
	for _, member := range members {
		if n, err := member.WriteShared(shared); err != nil || n < len(shared) {
			continue // closed or busy: offer shared[n:] again later
		}
	}
}
