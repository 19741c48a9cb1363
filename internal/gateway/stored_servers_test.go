package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/internal/testkit"
	"github.com/tidewire/tidewire/websocket"
)

// serverStore is what one of several servers sees of a store: it hears the outcomes of its own chats late, in order.
type serverStore struct {
	*memoryStore
	outcomes chan func()
}

func newServerStore(t *testing.T, all *memoryStore, random *rand.Rand) *serverStore {
	s := &serverStore{memoryStore: all, outcomes: make(chan func(), 10_000)}
	var running sync.WaitGroup
	running.Go(func() {
		for outcome := range s.outcomes {
			if random.IntN(4) == 0 {
				time.Sleep(time.Duration(random.IntN(8)) * time.Millisecond) // synctest: a store of a bubble
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

// viewer is a member that keeps what it has: chats, and the answers to its own, by position.
type viewer struct {
	conn socket
	mu   sync.Mutex
	view map[int64]string
	last int64 // the position of the last chat
	odd  []string
}

func (v *viewer) reads() {
	for {
		messages, err := read(v.conn)
		v.mu.Lock()
		for _, m := range messages {
			var got struct {
				Type           string
				Position, Last int64
				UpTo           int64 `json:"up_to"`
			}
			json.Unmarshal(m.Payload, &got)
			switch got.Type {
			case "ok", "chat":
				if v.view[got.Position] != "" {
					v.odd = append(v.odd, "twice: "+string(m.Payload))
				}
				v.view[got.Position] = got.Type
				if got.Type == "chat" {
					if got.Position <= v.last {
						v.odd = append(v.odd, fmt.Sprintf("after %d: %s", v.last, m.Payload))
					}
					v.last = got.Position
				}
			case "history_lost":
				for p := range v.view {
					if p > got.Last && p <= got.UpTo {
						delete(v.view, p)
					}
				}
			}
		}
		v.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// wrong returns in what the view differs from what is stored.
func (v *viewer) wrong(rooms []string) string {
	v.mu.Lock()
	defer v.mu.Unlock()
	all, kept := slices.Clone(v.odd), 0
	for i, room := range rooms {
		if room == "" {
			continue
		}
		if kept++; v.view[int64(i)+1] == "" {
			all = append(all, fmt.Sprint("misses ", i+1))
		}
	}
	if len(v.view) > kept {
		all = append(all, fmt.Sprint("has ", len(v.view)-kept, " that are lost"))
	}
	return strings.Join(all, ", ")
}

// TestStored_ManyServers: members at three servers talk, while failovers lose chats, sometimes two at once. They get the chats of all servers in
// the order of positions, each once, and none of their own. In the end, each member has what is stored, and knows of all the rest that it is lost.
func TestStored_ManyServers(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		random := rand.New(rand.NewPCG(1, 2))
		store := newMemoryStore(t)
		var all []*viewer
		for n := range uint64(3) {
			_, addr := serve(t, storedConfig(newServerStore(t, store, rand.New(rand.NewPCG(n, 1)))))
			for range 2 {
				v := &viewer{conn: joinStored(t, addr, "", joined(0, 0)).socket, view: make(map[int64]string)}
				v.conn.SetReadDeadline(time.Time{})
				go v.reads() // until the test closes the connection
				all = append(all, v)
			}
		}
		for range 4 * pgtest.Seeds() {
			for range 40 {
				for _, v := range all {
					if random.IntN(2) == 0 {
						v.conn.Queue(websocket.OpText, []byte(`{"type":"chat","room":"kept-1","text":"x","id":1}`))
						v.conn.Flush()
					}
				}
				time.Sleep(time.Millisecond)
			}
			for range 1 + random.IntN(2) {
				store.lose(int64(store.count() - random.IntN(25)))
				time.Sleep(time.Duration(random.IntN(20)) * time.Millisecond)
			}
		}
		wrong := ""
		defer func() {
			if t.Failed() {
				t.Log(wrong)
			}
		}()
		testkit.Eventually(t, "all members have what is stored", func() bool {
			store.state.Lock()
			rooms := slices.Clone(store.rooms)
			store.state.Unlock()
			wrong = ""
			for _, v := range all {
				wrong += v.wrong(rooms)
			}
			return wrong == ""
		})
	})
}
