package engine

import "context"

// Rooms stores the messages of stored rooms. All rooms share one sequence of
// positions.
type Rooms interface {
	// Append accepts a room's next message, of which it keeps a copy, and waits while
	// the store is at its limit. If it returns nil it calls done once, after the commit
	// with the position, or with an error. All calls of done come in position order,
	// from one goroutine. With ErrOutcomeUnknown the message may be stored; with any
	// other error it is not.
	//
	// With as, a repeated request of the client stores nothing: done gets the position of the first one, which may be
	// lower than those before, and duplicate is true. The request is looked for in all rooms.
	Append(ctx context.Context, room string, as *RequestID, payload []byte, done func(position int64, duplicate bool, err error)) error
	// After returns messages of a room after a position, up to upTo inclusive, in
	// order: at most limit, and no more once they reach that many bytes. It
	// returns none only if there are none. After position 0 they begin with the oldest that is kept; after another one, a TooOldError says that messages
	// after it were deleted, perhaps of this room.
	After(ctx context.Context, room string, after, upTo int64, limit, bytes int) ([]RoomMessage, error)
	// Start returns the position after which the last n messages of a room up to
	// a position begin.
	Start(ctx context.Context, room string, upTo int64, n int) (after int64, err error)
	// FromEnd returns the position of the n-th last message of a room, or 0 if fewer than n are kept after a position.
	FromEnd(ctx context.Context, room string, after int64, n int) (position int64, err error)
	// Head returns the position of the last message stored.
	Head(ctx context.Context) (int64, error)
	// Check returns a HistoryLostError if a failover has lost the message at a position, or the position is after the
	// last one; and a TooOldError as After does.
	Check(ctx context.Context, position int64) error
	// Follow calls receive with the messages of all rooms after a position, in order and without gap, soon after they were
	// committed, by this server or another one. receive must not keep the messages, nor change them. Follow returns when ctx
	// ends, or with an error after which the caller can call it again: a HistoryLostError if a failover has lost the
	// last message that receive got, or the one at the position.
	Follow(ctx context.Context, after int64, receive func([]RoomMessage)) error
}

// RoomMessage is one of a room's messages.
type RoomMessage struct {
	Room     string // set by Follow
	Position int64
	Payload  []byte
}
