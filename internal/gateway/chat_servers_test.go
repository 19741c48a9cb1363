package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/gateway"
	"github.com/tidewire/tidewire/websocket"
)

// serverStore is what one of several servers sees of a store: it hears the outcomes of its own chats late, in order.
type serverStore struct {
	*memoryStore
	outcomes chan func()
}

func newServerStore(t *testing.T, all *memoryStore, seed uint64) *serverStore {
	s := &serverStore{memoryStore: all, outcomes: make(chan func(), 10_000)}
	random := rand.New(rand.NewPCG(seed, 1))
	var running sync.WaitGroup
	running.Go(func() {
		for outcome := range s.outcomes {
			if random.IntN(10) == 0 {
				time.Sleep(time.Duration(random.IntN(5)) * time.Millisecond)
			}
			outcome()
		}
	})
	t.Cleanup(func() { close(s.outcomes); running.Wait() })
	return s
}

func (s *serverStore) Append(ctx context.Context, room string, as *engine.RequestID, payload []byte, done func(int64, bool, error)) error {
	return s.memoryStore.Append(ctx, room, as, payload, func(position int64, duplicate bool, err error) {
		s.outcomes <- func() { done(position, duplicate, err) }
	})
}

// TestStored_OneOrderOnAllServers: members of rooms that several servers store get the chats of all servers in the order of
// their positions, each once, and none of their own.
func TestStored_OneOrderOnAllServers(t *testing.T) {
	t.Parallel()
	const servers, members, chats = 3, 2, 200
	all := newMemoryStore(t)
	var conns []*websocket.Conn
	for n := range servers {
		_, addr := serve(t, gateway.Config{
			Engine: engine.Engine{Rooms: newServerStore(t, all, uint64(n))}, Only: gateway.Chat,
			Chat: gateway.ChatConfig{StoredRooms: []string{"kept-*"}, RateLimit: 1e6, RateBurst: 1e6},
		})
		for range members {
			c := dial(t, "ws://"+addr+"/ws")
			send(t, c, `{"type":"join","room":"kept-1","id":1}`, `{"type":"join","room":"kept-2","id":2}`)
			expect(t, c, `{"history":0,"id":1,"position":0,"type":"ok"}`, `{"history":0,"id":2,"position":0,"type":"ok"}`)
			conns = append(conns, c)
		}
	}
	var talking sync.WaitGroup
	for who, c := range conns {
		talking.Go(func() {
			random := rand.New(rand.NewPCG(uint64(who), 2))
			for n := range chats {
				c.Queue(websocket.OpText, fmt.Appendf(nil, `{"type":"chat","room":"kept-%d","text":"%d-%d","id":"own"}`, 1+random.IntN(2), who, n))
				if c.Flush(); random.IntN(5) == 0 {
					time.Sleep(time.Millisecond)
				}
			}
		})
	}
	var reading sync.WaitGroup
	for who, c := range conns {
		reading.Go(func() { readAll(t, c, who, len(conns)*chats) })
	}
	talking.Wait()
	reading.Wait()
}

// readAll reads until a member has got every position up to the last one, either as a chat or as the answer to its own chat.
func readAll(t *testing.T, c *websocket.Conn, who, last int) {
	c.SetReadDeadline(time.Now().Add(patience))
	own, got, before := make(map[int64]bool), make(map[int64]bool), make(map[string]int64)
	for len(own)+len(got) < last {
		messages, err := read(c)
		for _, m := range messages {
			var chat struct {
				Type, Room string
				Position   int64
			}
			if err := json.Unmarshal(m.Payload, &chat); err != nil {
				t.Error(err)
			}
			switch {
			case chat.Type == "ok":
				own[chat.Position] = true
			case chat.Type != "chat" || chat.Position <= before[chat.Room]:
				t.Errorf("member %d, after %d: %s", who, before[chat.Room], m.Payload)
				return
			default:
				before[chat.Room] = chat.Position
				got[chat.Position] = true
			}
		}
		if err != nil {
			t.Errorf("member %d has %d of %d: %v", who, len(own)+len(got), last, err)
			return
		}
	}
	for position := range int64(last) {
		if own[position+1] == got[position+1] {
			t.Errorf("member %d, position %d: own %t, got %t", who, position+1, own[position+1], got[position+1])
		}
	}
}

// TestStored_JoinAfterAChatOfAnotherServer: a member that has received a chat at one server joins at another one, which has
// not seen it yet, and gets what follows, once.
func TestStored_JoinAfterAChatOfAnotherServer(t *testing.T) {
	t.Parallel()
	store, _, addr := serveStored(t)
	store.see(false)
	store.put("kept-1", `{"type":"chat","room":"kept-1","text":"1"}`)
	c := dial(t, "ws://"+addr+"/ws")
	send(t, c, `{"type":"join","room":"kept-1","after":1,"id":1}`, `{"type":"ping","ts":1}`)
	expect(t, c, `{"ts":1,"type":"pong"}`) // the join waits
	store.see(true)
	expect(t, c, `{"history":0,"id":1,"position":1,"type":"ok"}`)
	store.put("kept-1", `{"type":"chat","room":"kept-1","text":"2"}`)
	expect(t, c, `{"type":"chat","room":"kept-1","text":"2","position":2}`)
}
