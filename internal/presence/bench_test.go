package presence_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/tidewire/tidewire/internal/presence"
	"github.com/tidewire/tidewire/internal/room"
	"github.com/tidewire/tidewire/websocket"
)

// BenchmarkJoinAndLeave measures a join and the leave of a room with 1,000 members, without and with a Recorder. With full nothing is written: all but the first
// events are lost.
func BenchmarkJoinAndLeave(b *testing.B) {
	conns := make(chan *websocket.Conn, 1)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := websocket.Upgrade(w, r, websocket.Config{})
		if err != nil {
			b.Error(err)
		}
		conns <- c
	}))
	defer s.Close()
	client, err := websocket.Dial(b.Context(), "ws"+strings.TrimPrefix(s.URL, "http"), websocket.Config{})
	if err != nil {
		b.Fatal(err)
	}
	defer client.Abort()
	conn := <-conns
	defer conn.Abort()
	for _, name := range []string{"off", "on", "full"} {
		b.Run(name, func(b *testing.B) {
			var observer room.Observer
			if name != "off" {
				r := presence.Unwritten(1 << 16)
				observer = r.Connected("ann")
				if name == "on" {
					defer presence.Discard(r)()
				}
			}
			h := room.NewHub(room.Config{})
			opts := room.JoinOptions{User: "ann", Observer: observer}
			members := make([]*room.Member, 1000)
			for i := range members {
				members[i] = h.Join(conn, "lobby", room.JoinOptions{User: fmt.Sprint(i)})
			}
			b.ReportAllocs()
			for b.Loop() {
				h.Join(conn, "lobby", opts).Leave()
			}
			for _, m := range members {
				m.Leave()
			}
			h.Wait()
		})
	}
}

// BenchmarkPicture measures for how long the mutex is held when the picture of 100,000 connections in two rooms each is told anew.
func BenchmarkPicture(b *testing.B) {
	r := presence.Unwritten(1 << 20)
	for i := range 100_000 {
		c := r.Connected(fmt.Sprint("u", i))
		c.Joined("lobby", "u")
		c.Joined("attic", "u")
	}
	for b.Loop() {
		presence.TakePicture(r)
	}
}
