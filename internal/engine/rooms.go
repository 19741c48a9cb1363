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
	Append(ctx context.Context, room string, payload []byte, done func(position int64, err error)) error
	// After returns messages of a room after a position, up to upTo inclusive, in
	// order: at most limit, and no more once they reach that many bytes. It
	// returns none only if there are none.
	After(ctx context.Context, room string, after, upTo int64, limit, bytes int) ([]RoomMessage, error)
	// Start returns the position after which the last n messages of a room up to
	// a position begin.
	Start(ctx context.Context, room string, upTo int64, n int) (after int64, err error)
	// Head returns the position of the last message stored.
	Head(ctx context.Context) (int64, error)
	// Check returns a HistoryLostError if a failover has lost the message at a position, or the position is after the
	// last one.
	Check(ctx context.Context, position int64) error
	// FindLost returns the range of positions of messages that Append stored and a failover has lost, or zeros. It is
	// called once a second, and reports each loss once.
	FindLost(ctx context.Context) (after, upTo int64, err error)
}

// RoomMessage is one of a room's messages.
type RoomMessage struct {
	Position int64
	Payload  []byte
}
