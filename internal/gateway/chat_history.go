package gateway

import (
	"context"
	"fmt"
	"unicode/utf8"

	"github.com/tidewire/tidewire/internal/budget"
	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/room"
	"github.com/tidewire/tidewire/websocket"
)

const (
	// maxHistory is the largest number of last messages that a join can
	// request. A join with a position gets all messages after it.
	maxHistory = 1000
	// historyPage and historyBytes limit one page of history, in messages and
	// bytes.
	historyPage  = 200
	historyBytes = 256 << 10
	// maxReading is how many pages of history are read at a time, for all joins.
	// A join holds at most one page, whose frames are being sent to its peer.
	maxReading = 8
)

// join makes p a member that first gets the requested history. It returns the
// number of history messages, and the position up to which they are complete.
func (s *storedRooms) join(ctx context.Context, p *participant, name string, msg chatMessage, opts room.JoinOptions) (_ *room.Member, count int, upTo int64, err error) {
	past, after := msg.After != nil || msg.History > 0, int64(0)
	losses := s.lossCount()
	if past {
		after, err = query(ctx, p.conn.socket, func() (int64, error) { return s.historyStart(ctx, name, msg) })
		if err != nil {
			return nil, 0, 0, err
		}
		// Most of the history is sent before the join, so that few new messages are held back.
		if after, count, err = s.catchUp(ctx, p, name, after); err != nil {
			return nil, count, 0, err
		}
	}
	opts.Hold = true
	s.mu.Lock()
	for _, last := range s.losses[losses:] {
		if after > last { // what was sent is lost, and the news has come before the join
			defer s.mu.Unlock()
			return nil, count, 0, &engine.HistoryLostError{Last: last}
		}
	}
	m, upTo := s.hub.Join(p.conn.Conn, name, opts), s.published
	s.mu.Unlock()
	done := false
	defer func() {
		if !done { // also after a panic
			m.Leave()
		}
	}()
	if past {
		var n int
		after, n, err = s.send(ctx, p, name, after, upTo)
		count += n
	}
	if err != nil {
		return nil, count, 0, err
	}
	done = true
	return m, count, max(upTo, after), nil
}

// lossCount returns how often a failover has lost chats that were published.
func (s *storedRooms) lossCount() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.losses)
}

// head returns the position up to which all messages have been published.
func (s *storedRooms) head() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.published
}

// historyStart returns the position after which a join's history begins.
func (s *storedRooms) historyStart(ctx context.Context, name string, msg chatMessage) (after int64, err error) {
	stored, err := s.store.Head(ctx)
	if err != nil {
		return 0, err
	}
	if err := s.reach(ctx, stored); err != nil {
		return 0, err
	}
	if msg.After == nil {
		return s.store.Start(ctx, name, s.head(), s.atMost(min(msg.History, maxHistory)))
	}
	if *msg.After > 0 {
		if err := s.store.Check(ctx, *msg.After); err != nil {
			return 0, err
		}
	}
	return s.bounded(ctx, name, *msg.After)
}

// atMost returns how many of a room's last n chats a reader gets.
func (s *storedRooms) atMost(n int) int {
	if s.keep > 0 {
		n = min(n, s.keep)
	}
	return n
}

// bounded returns where a reader after a position begins, in a room that shows only its
// last chats: after position 0 with the oldest of these. After another one, a TooOldError
// says that chats after it are not shown any more. Chats that come while the reader
// reads do not count.
func (s *storedRooms) bounded(ctx context.Context, name string, after int64) (int64, error) {
	if s.keep == 0 {
		return after, nil
	}
	hidden, err := s.store.FromEnd(ctx, name, after, s.keep+1)
	switch {
	case err != nil || hidden == 0:
		return after, err
	case after > 0:
		return 0, &engine.TooOldError{Oldest: hidden + 1}
	}
	return hidden, nil
}

// catchUp sends the published messages after a position, until less than a page
// is left; join sends the rest to the member.
func (s *storedRooms) catchUp(ctx context.Context, p *participant, name string, after int64) (last int64, count int, err error) {
	for {
		var n int
		after, n, err = s.send(ctx, p, name, after, s.head())
		count += n
		if err != nil || n < historyPage {
			return after, count, err
		}
	}
}

// send sends the messages between two positions on the bulk lane, as fast as
// the peer reads, and returns how many there were.
func (s *storedRooms) send(ctx context.Context, p *participant, name string, after, upTo int64) (last int64, count int, err error) {
	var frames []byte
	memory, held := p.conn.memory, int64(0)
	defer func() { memory.Release(budget.CatchUp, held) }()
	for after < upTo {
		next, n := upTo, 0
		if err := memory.Reserve(ctx, budget.CatchUp, 2*historyBytes-held); err != nil {
			return after, count, err
		}
		held = max(held, 2*historyBytes)
		if frames, next, n, err = s.page(ctx, p.conn.socket, frames[:0], name, after, upTo); err != nil {
			return after, count, err
		}
		memory.Take(budget.CatchUp, int64(cap(frames))-held)
		memory.Release(budget.CatchUp, held-int64(cap(frames)))
		held = int64(cap(frames))
		if len(frames) > 0 {
			if err := p.conn.WriteBulkFrames(ctx, frames); err != nil {
				return after, count, fmt.Errorf("send history: %w", err)
			}
		}
		after, count = next, count+n
	}
	return after, count, nil
}

// page reads one page and appends its chats as frames. It returns the position up
// to which the page is complete, and the number of chats.
func (s *storedRooms) page(ctx context.Context, by asking, frames []byte, name string, after, upTo int64) (_ []byte, last int64, count int, err error) {
	end, err := by.Query(ctx) // before what all users share: who waits here must not hold that
	if err != nil {
		return nil, 0, 0, err
	}
	defer end()
	select {
	case s.reading <- struct{}{}:
		defer func() { <-s.reading }()
	case <-ctx.Done():
		return nil, 0, 0, ctx.Err()
	}
	rows, err := s.store.After(ctx, name, after, upTo, historyPage, historyBytes)
	if err != nil || len(rows) == 0 {
		return frames, upTo, 0, err
	}
	var text []byte
	for _, row := range rows {
		if !isChat(row.Payload) {
			s.skip(name, row.Position)
			continue
		}
		text = appendPlaced(text[:0], row.Payload, row.Position)
		frames = websocket.AppendFrame(frames, websocket.OpText, text)
		count++
	}
	return frames, rows[len(rows)-1].Position, count, nil
}

// isChat reports whether a row holds a valid chat. Other programs can write to
// the table.
func isChat(payload []byte) bool {
	msg, why := parseChat(payload)
	return why == nil && msg.Type == "chat" && !msg.Placed && utf8.Valid(payload)
}
