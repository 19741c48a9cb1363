package cli_test

import (
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/tidewire/tidewire/websocket"
)

// TestCluster_StoredRooms: members of a stored room at three servers get the chats of all in one order while they come, with
// and without a cluster.
func TestCluster_StoredRooms(t *testing.T) {
	t.Parallel()
	for name, cluster := range map[string][]string{"cluster": {"--cluster", "tides", "--cluster-listen", "127.0.0.1:0"}, "database alone": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const servers, members, chats = 3, 2, 50
			db := migrated(t)
			flags := append([]string{"--database-url", db.URL, "--stored-rooms", "lobby", "--rate-limit", "1e6", "--rate-burst", "1e6"}, cluster...)
			var all []*storedMember
			var views []*presenceView
			for range servers {
				p := serve(t, flags...)
				for range members {
					all = append(all, enterStored(t, p.addr))
				}
				if cluster != nil {
					views = append(views, watchRoom(t, p.addr, fmt.Sprint("user", len(views))))
				}
			}
			for _, v := range views {
				v.await(t, servers*members+servers, "user0", "user1", "user2")
			}
			var talking sync.WaitGroup
			for who, m := range all {
				talking.Go(func() {
					for n := range chats {
						say(m.conn, `{"type":"chat","room":"lobby","text":"%d-%d","id":1}`, who, n)
					}
				})
				talking.Go(func() { m.read(t, len(all)*chats) })
			}
			talking.Wait()
			for who, m := range all {
				for position := range m.own {
					for other, o := range all {
						if text := o.got[position]; (text == "") != (other == who) {
							t.Errorf("member %d has %q at position %d, which member %d has stored", other, text, position, who)
						}
					}
				}
			}
		})
	}
}

// storedMember is a member of the stored room "lobby".
type storedMember struct {
	conn *websocket.Conn
	own  map[int64]bool   // the positions of its chats
	got  map[int64]string // the chats that it has received, by position
}

func enterStored(t *testing.T, addr string) *storedMember {
	t.Helper()
	m := &storedMember{conn: chatDial(t, addr), own: make(map[int64]bool), got: make(map[int64]string)}
	say(m.conn, `{"type":"join","room":"lobby","id":1}`)
	wantAnswer(t, m.conn, chatAnswer{Type: "ok", ID: 1})
	return m
}

// read reads until the member has so many chats and answers. Chats come in the order of positions.
func (m *storedMember) read(t *testing.T, chats int) {
	last := int64(0)
	m.conn.SetReadDeadline(time.Now().Add(time.Minute))
	for len(m.own)+len(m.got) < chats {
		messages, err := m.conn.Read()
		for _, message := range messages {
			var a chatAnswer
			json.Unmarshal(message.Payload, &a)
			switch {
			case a.Type == "ok":
				m.own[a.Position] = true
			case a.Type == "chat" && a.Position > last:
				last = a.Position
				m.got[last] = a.Text
			case a.Type != "ping":
				t.Errorf("after position %d: %s", last, message.Payload)
				return
			}
		}
		if err != nil {
			t.Errorf("%d chats and %d answers of %d: %v", len(m.got), len(m.own), chats, err)
			return
		}
	}
}
