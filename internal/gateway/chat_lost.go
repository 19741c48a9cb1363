package gateway

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/tidewire/tidewire/websocket"
)

const (
	// lostEvery is how often stored rooms check whether a failover has lost
	// chats.
	lostEvery = time.Second
	// lostTimeout bounds one check.
	lostTimeout = 5 * time.Second
)

// lossWatch checks whether a failover has lost chats that this server sent to
// members.
type lossWatch struct {
	rooms   *storedRooms
	quit    context.CancelFunc
	running sync.WaitGroup
}

// watchLosses returns a lossWatch that runs until stop.
func watchLosses(s *storedRooms) *lossWatch {
	w := &lossWatch{rooms: s}
	ctx, quit := context.WithCancel(context.Background())
	w.quit = quit
	w.running.Go(func() { w.run(ctx) })
	return w
}

func (w *lossWatch) run(ctx context.Context) {
	tick := time.NewTicker(lostEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			w.look(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// look checks once. It does not log errors: while PostgreSQL is away, others do.
func (w *lossWatch) look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, lostTimeout)
	defer cancel()
	if after, upTo, err := w.rooms.store.FindLost(ctx); err == nil && upTo > 0 {
		w.rooms.lost(after, upTo)
	}
}

func (w *lossWatch) stop() {
	w.quit()
	w.running.Wait()
}

// lost tells the members of all stored rooms that the chats between two positions, which they have received, are lost.
// A later join gets the chats after the first position.
func (s *storedRooms) lost(after, upTo int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.published <= upTo {
		s.published = after
	}
	s.hub.PublishEach(websocket.OpText, func(room string) []byte {
		if !s.has(room) {
			return nil
		}
		notice, _ := json.Marshal(historyLost{Type: "history_lost", Room: room, Last: after}) // of strings and numbers: it can't fail
		return notice
	})
}

// historyLost tells the members of a room that the chats after Last are lost.
type historyLost struct {
	Type string `json:"type"`
	Room string `json:"room"`
	Last int64  `json:"last"`
}
