package gateway

import (
	"context"
	"math"
	"strconv"
	"time"

	"github.com/tidewire/tidewire/internal/auth"
	"github.com/tidewire/tidewire/internal/budget"
	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/room"
)

// roomFollower sends the messages of a room to a client. It is no member of the room: a connection that only reads says nothing, and nobody can answer it.
type roomFollower struct {
	*eventSource
	name string
	room *followedRoom
	// reader has what comes. It is nil while what is stored is sent, up to the last page.
	reader *roomReader
	// rooms is nil if the room is not stored.
	rooms *storedRooms
	after int64 // what is stored was sent up to this position
	// losses is of how many losses of history the client knows.
	losses int
}

// followRoom sends the messages of a room: in a stored room those after a position, and then, as in any other room, those to come.
func (c *call) followRoom() {
	name, ok := c.room()
	if !ok {
		return
	}
	after, past, ok := c.roomStart()
	if !ok {
		return
	}
	stored := c.api.server.chats.stored
	if past && !stored.has(name) {
		c.refuseFor(&problem{code: codeNotStoredIn, text: "the chats of this room are not stored: follow it without a position"})
		return
	}
	history := func(caller *auth.Caller) *problem { return mayAll(c.ctx, caller, need{"history", auth.Room, name}) }
	if past && c.r.Header.Get("Last-Event-ID") != "" && c.caller != nil && history(c.caller) != nil {
		past = false // a browser sends what it got as id: it may go on, without what it missed
	}
	if past && !c.permitAlso(history) {
		return
	}
	ctx, cancel := c.followContext()
	defer cancel()
	if !c.reserve(budget.Follow, followOverhead) {
		return
	}
	f := &roomFollower{eventSource: &eventSource{c: c}, name: name, room: c.api.followed.enter(name)}
	defer c.api.followed.leave(f.room)
	defer f.detach()
	if stored.has(name) {
		f.rooms = stored
	}
	if err := f.begin(ctx, after, past); err != nil {
		c.fail(err, codeUnavailable)
		return
	}
	at := int64(-1)
	if f.rooms != nil {
		at = f.after
	}
	f.serve(at, func() error {
		if f.reader == nil {
			return f.catchUp(ctx)
		}
		return f.turn(ctx)
	})
}

// roomStart returns the position after which a follower of a room begins, and whether it has named one.
func (c *call) roomStart() (after int64, past, ok bool) {
	if last := c.r.Header.Get("Last-Event-ID"); last != "" {
		after, err := strconv.ParseInt(last, 10, 64)
		if err != nil || after < 0 {
			c.refuseFor(wrong(codeStart, "Last-Event-ID", "a position, 0 or more"))
			return 0, false, false
		}
		return after, true, true
	}
	after, ok = c.number("after", 0, math.MaxInt64, 0)
	return after, c.r.URL.Query().Get("after") != "", ok
}

// begin finds out where the follower begins. Without a position it is there when begin returns.
func (f *roomFollower) begin(ctx context.Context, after int64, past bool) error {
	switch {
	case f.rooms == nil:
		f.reader = f.room.attach()
		return nil
	case !past:
		f.rooms.mu.Lock()
		defer f.rooms.mu.Unlock()
		f.attachStored()
		f.after = f.rooms.published
		return nil
	}
	f.losses = f.rooms.lossCount()
	var err error
	f.after, err = query(ctx, f.c, func() (int64, error) { return f.rooms.historyStart(ctx, f.name, chatMessage{After: &after}) })
	return err
}

// attachStored has the follower get what is published from now on. The caller holds rooms.mu.
func (f *roomFollower) attachStored() {
	f.reader = f.room.attach()
	f.losses = len(f.rooms.losses)
}

func (f *roomFollower) detach() {
	if f.reader != nil {
		f.reader.detach()
		f.reader = nil
	}
}

// catchUp sends what is stored, and then has the follower get what comes.
func (f *roomFollower) catchUp(ctx context.Context) error {
	for n := historyPage; n >= historyPage; {
		var err error
		if n, err = f.page(ctx, f.rooms.head()); err != nil {
			return err
		}
	}
	upTo, err := f.join()
	for err == nil && f.after < upTo {
		_, err = f.page(ctx, upTo)
	}
	return err
}

// join has the follower get what comes after the position that it returns, unless something is lost that was sent.
func (f *roomFollower) join() (upTo int64, err error) {
	s := f.rooms
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, last := range s.losses[f.losses:] {
		if f.after > last {
			return 0, &engine.HistoryLostError{Last: last}
		}
	}
	f.attachStored()
	return s.published, nil
}

// unhurried is an asking of a call that has begun to answer: the follower looks at the rights itself, and tells their end in an event.
type unhurried struct{ c *call }

// Query implements asking.
func (u unhurried) Query(ctx context.Context) (end func(), err error) { return u.c.turn(ctx) }

// page sends a page of stored chats, up to a position, and returns how many these were.
func (f *roomFollower) page(ctx context.Context, upTo int64) (count int, err error) {
	if f.after >= upTo {
		return 0, nil
	}
	if why := f.c.lapsed(); why != nil {
		return 0, errOver{why}
	}
	if err := f.c.memory.Reserve(ctx, budget.CatchUp, 2*historyBytes); err != nil {
		return 0, err
	}
	defer f.c.memory.Release(budget.CatchUp, 2*historyBytes)
	frames, next, count, err := f.rooms.page(ctx, unhurried{f.c}, nil, f.name, f.after, upTo)
	if err != nil {
		return 0, err
	}
	eachPayload(frames, func(_ int, payload []byte) {
		e := newRoomEvent(payload, true)
		f.out = append(f.out, e.text...)
	})
	f.after = next
	return count, f.deliver(count)
}

// turn sends what has come, or a comment if that is nothing for a while.
func (f *roomFollower) turn(ctx context.Context) error {
	got, err := f.take(ctx)
	if err != nil {
		return err
	}
	if why := f.c.lapsed(); why != nil {
		return errOver{why}
	}
	switch {
	case got.missed > 0 && f.rooms != nil: // the store has them
		f.detach()
		return nil
	case got.missed > 0:
		f.c.api.followed.missed.Add(uint64(got.missed))
		f.out = append(f.out, newRoomEvent(room.GapNotice(f.name, got.missed), false).text...)
	case got.count == 0:
		f.out = append(f.out, ":\n\n"...)
	case got.position > 0 || got.lost > 0:
		f.after = got.position
		f.losses += got.lost
	}
	return f.deliver(got.count)
}

// take waits for something to come, at most for followBeat, and appends it to out.
func (f *roomFollower) take(ctx context.Context) (taken, error) {
	beat := time.NewTimer(followBeat)
	defer beat.Stop()
	for {
		var got taken
		var changed <-chan struct{}
		if f.out, got, changed = f.reader.take(f.out, answerChunk); changed == nil {
			return got, nil
		}
		select {
		case <-changed:
		case <-beat.C:
			return got, nil
		case <-ctx.Done():
			return got, ctx.Err()
		}
	}
}

// deliver sends what is there, which has so many chats.
func (f *roomFollower) deliver(count int) error {
	size := int64(len(f.out))
	f.c.memory.Take(budget.Page, size)
	defer f.c.memory.Release(budget.Page, size)
	err := f.send()
	if err == nil {
		f.c.api.server.sessions.delivered.Add(uint64(count))
	}
	if cap(f.out) > maxSpare {
		f.out = nil
	}
	return err
}

// maxSpare is how many bytes a follower keeps for what it sends next.
const maxSpare = 2 * answerChunk
