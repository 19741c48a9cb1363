package gateway

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/tidewire/tidewire/websocket"
)

const (
	// lostEvery is how often stored rooms ask whether a failover has lost chats.
	lostEvery = time.Second
	// lostTimeout bounds one such question.
	lostTimeout = 5 * time.Second
)

// lossWatch asks whether a failover has lost chats that members got from here.
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

// look asks once. There is nothing to say of it while PostgreSQL is away: others do.
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

// lost tells the members of all stored rooms that the chats between two positions are lost: they got them. A join from now on gets what comes after the
// first.
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

// historyLost tells the members of a room that what they got after Last is lost.
type historyLost struct {
	Type string `json:"type"`
	Room string `json:"room"`
	Last int64  `json:"last"`
}
