package gateway_test

import (
	"context"
	"errors"
	"testing"

	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/gateway"
	"github.com/tidewire/tidewire/websocket"
)

// interruptedRooms calls a function in the first and in the second read of a
// history, and returns the error of the second function.
type interruptedRooms struct {
	*memoryStore
	first  func()
	second func(context.Context) error
	reads  chan int // one slot: the number of reads
}

func (r *interruptedRooms) After(ctx context.Context, room string, after, upTo int64, limit, bytes int) ([]engine.RoomMessage, error) {
	n := <-r.reads + 1
	r.reads <- n
	var err error
	switch n {
	case 1:
		r.first()
	case 2:
		err = r.second(ctx)
	}
	page, _ := r.memoryStore.After(ctx, room, after, upTo, limit, bytes)
	return page, err
}

// TestJoin_InterruptedLeaves: a join that fails after the member has entered, while
// the rest of the history is sent, leaves the room.
func TestJoin_InterruptedLeaves(t *testing.T) {
	t.Parallel()
	for name, connectionBreaks := range map[string]bool{"read fails": false, "connection breaks": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := &interruptedRooms{memoryStore: newMemoryStore(t), reads: make(chan int, 1)}
			store.reads <- 0
			_, addr := serve(t, gateway.Config{Engine: engine.Engine{Ingest: (&memory{}).source, Rooms: store}, Chat: gateway.ChatConfig{StoredRooms: []string{"kept-*"}}})
			talker, joiner := connect(t, addr), connect(t, addr)
			talker.ask(`{"type":"join","room":"kept-1","id":1}`, `{"history":0,"id":1,"position":0,"type":"ok"}`)
			talker.ask(`{"type":"chat","room":"kept-1","text":"before","id":2}`, `{"id":2,"position":1,"type":"ok"}`)
			said := make(chan struct{})
			store.first = func() { // so that there is more to send once the member has entered
				talker.Queue(websocket.OpText, []byte(`{"type":"chat","room":"kept-1","text":"meanwhile","id":3}`))
				talker.Flush()
				<-said
			}
			store.second = func(ctx context.Context) error {
				if connectionBreaks {
					joiner.Abort()
					<-ctx.Done() // the server has noticed
					return nil
				}
				return errors.New("away")
			}
			send(t, joiner.Conn, `{"type":"join","room":"kept-1","after":0,"id":"join"}`)
			talker.want(`{"id":3,"position":2,"type":"ok"}`)
			close(said)
			if !connectionBreaks {
				joiner.want(`{"type":"chat","room":"kept-1","text":"before","position":1}`)
				if a := joiner.next(); a != `{"code":"unavailable","id":"join","message":"this cannot be read now; try again later","retryable":true,"type":"error"}` {
					t.Errorf("the join was answered with %s", a)
				}
				joiner.ask(`{"type":"chat","room":"kept-1","text":"x","id":"chat"}`, `{"code":"not_joined","id":"chat","message":"join the room first","retryable":false,"type":"error"}`)
			} else {
				awaitMetric(t, addr, "tidewire_connections 1")
			}
			awaitMetric(t, addr, "tidewire_chat_rooms 1")
			talker.ask(`{"type":"leave","room":"kept-1","id":4}`, `{"id":4,"type":"ok"}`)
			awaitMetric(t, addr, "tidewire_chat_rooms 0")
			awaitMetric(t, addr, "tidewire_panics_total 0")
		})
	}
}
