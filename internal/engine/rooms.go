package engine

import "context"

// Rooms keeps what is said in rooms whose messages outlive them. All rooms
// share one order of positions.
type Rooms interface {
	// Append accepts a room's next message, of which it keeps a copy, and waits
	// while the store has enough to do. If it returns nil it calls done once: after the
	// commit with the position, or with why there is none; all calls in the order
	// of positions, from one goroutine. With ErrOutcomeUnknown the message may be
	// stored; with any other error it is not.
	Append(ctx context.Context, room string, payload []byte, done func(position int64, err error)) error
	// After returns messages of a room after a position, up to one inclusive, in
	// order: at most limit, and none after those with which it holds bytes bytes.
	// It returns none only if there are none.
	After(ctx context.Context, room string, after, upTo int64, limit, bytes int) ([]RoomMessage, error)
	// Start returns the position after which the last n messages of a room begin,
	// of those up to a position.
	Start(ctx context.Context, room string, upTo int64, n int) (after int64, err error)
	// Head returns the position of the last message stored.
	Head(ctx context.Context) (int64, error)
	// Check returns a HistoryLostError if a failover has lost what was stored at a position, or it is after the last one.
	Check(ctx context.Context, position int64) error
	// FindLost returns after which position a failover has lost what Append stored, up to which, or zeros. It is called
	// once a second. A loss is found once.
	FindLost(ctx context.Context) (after, upTo int64, err error)
}

// RoomMessage is one of a room's messages.
type RoomMessage struct {
	Position int64
	Payload  []byte
}
