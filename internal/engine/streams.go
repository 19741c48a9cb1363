package engine

import (
	"context"
	"encoding/json"
	"time"
)

// Message is one message of a stream or queue.
type Message struct {
	// Position and Time are set by the store.
	Position int64
	Time     time.Time
	// Key is valid UTF-8; empty means no key.
	Key string
	// Headers is a JSON object, or empty.
	Headers json.RawMessage
	Payload []byte
}

// MaxPayload is the largest payload that the functions of the database take, in bytes, and by default also a server.
const MaxPayload = 1 << 20

// KeepRequests is the minimum time for which a request with a RequestID can be repeated, of all parts of an engine.
// After that its repetition is stored again only if ErrSequenceTooOld does not reject it: an engine never stores
// a request twice.
const KeepRequests = 10 * time.Minute

// RequestID names a request, so that it can be repeated. Sequences of a client should grow. Each part of an engine
// keeps the names of all clients permanently, some 100 bytes each.
type RequestID struct {
	Client   string
	Sequence int64
}

// Place is the position of a stored message.
type Place struct {
	Partition int // -1 if the stream has none
	Position  int64
	// Count is how many messages the request has stored, and Duplicate whether an earlier call stored them.
	Count     int
	Duplicate bool
}

// Streams are named logs. A ctx bounds only the call it is passed to.
type Streams interface {
	// Publish accepts messages, whose payloads, keys and headers it may keep, but not the slice, and waits while the
	// store is at its limit. If it returns nil it calls done once: after the commit with the
	// place of the first, the others following without a gap, or with why none is
	// stored. done is brief and may be called before Publish returns. Messages that one
	// caller publishes to a stream are stored in the order of its calls, in each
	// partition. With as, a repeated request of the client stores nothing and gets the
	// place of the first one.
	Publish(ctx context.Context, stream string, as *RequestID, messages []Message, done func(first Place, err error)) error
	// Subscribe opens a subscription of a stream.
	Subscribe(ctx context.Context, stream string, from Start) (Subscription, error)
	// Join makes the caller a member of a group that divides the partitions of the stream among its members, and
	// creates the group if it does not exist.
	Join(ctx context.Context, stream, group string) (Membership, error)
	// Commit moves a group's offset forward to a position. After the commit it
	// returns the offset, which may be higher.
	Commit(ctx context.Context, stream, group string, position int64) (offset int64, err error)
	// CommitLater is Commit without a result; it does not wait for the commit.
	CommitLater(ctx context.Context, stream, group string, position int64) error
	// Read returns messages after a position, in order, with a key if that is
	// not nil: at most limit, and fewer if they are large, but one if there is one.
	Read(ctx context.Context, stream string, key *string, after int64, limit int) ([]Message, error)

	// Create creates a stream if it does not exist, and returns its options. If it
	// exists with other options, the error is ErrExists. With nil opts a new
	// stream gets the engine's defaults, and an existing one may have any options.
	Create(ctx context.Context, name string, opts *StreamOptions) (StreamOptions, error)
	List(ctx context.Context) ([]StreamInfo, error)
	Info(ctx context.Context, name string) (StreamDetails, error)
	// Groups returns groups of a stream, ordered by the bytes of their names: at most
	// limit groups after a name, or from the first if that is empty.
	Groups(ctx context.Context, name, after string, limit int) ([]GroupInfo, error)
	// SeekGroup sets the offset of a group to where a subscription would begin, also backwards, and returns it. The Group
	// of to is not used. Open subscriptions of the group continue at their own positions, and their next commit may move
	// the offset forward again: they have to end first, or subscribe again. For a position outside of what is kept, the
	// error is a TooOldError or a HistoryLostError. In a stream with partitions, it seeks in all of them, and returns the
	// sum; a position needs one partition.
	SeekGroup(ctx context.Context, stream, group string, to Start) (offset int64, err error)
	// DropGroup removes a group. A client that still commits to it makes a new one of its name.
	DropGroup(ctx context.Context, stream, group string) error
	// Retention returns what a stream keeps, and SetRetention changes it, for all partitions. Servers delete the rest, about every 10 seconds.
	Retention(ctx context.Context, stream string) (Retention, error)
	SetRetention(ctx context.Context, stream string, r Retention) error
	Drop(ctx context.Context, name string) error
}

// Retention says what a stream keeps. The zero value is everything.
type Retention struct {
	MaxAge   time.Duration // messages that are older are deleted; 0: no bound
	MaxBytes int64         // the oldest are deleted while the stream is larger on disk; 0: no bound
	// Consumed keeps what a group has not read yet, whatever the bounds are, and everything while there is no group.
	// Without bounds, only what all groups have read is deleted.
	Consumed bool
}

// Start is where a subscription begins: at a group's offset, at a time, at the
// end, or after a position. The first field that is set counts.
type Start struct {
	Group string    // at its committed offset; the group is created if it does not exist
	At    time.Time // with the first message of that time or later
	End   bool      // after the last message
	After int64     // 0 is the beginning
}

// Subscription reads a stream. Only one goroutine may call Next; Close may be
// called by another.
type Subscription interface {
	// Position is the position of the last message of Next, initially the start
	// position.
	Position() int64
	// Next returns the next messages in order, one to most, without gap or
	// repetition; the store limits their bytes. It waits until there is one, also
	// while the database is away. The caller must not change them. Any error but
	// ctx's is permanent.
	Next(ctx context.Context, most int) ([]Message, error)
	Close()
}

// TrySubscription is a Subscription that can wait without reading, so that its caller can make room for a page first.
type TrySubscription interface {
	// Wait waits until there may be messages, or an error, for TryNext.
	Wait(ctx context.Context) error
	// TryNext is Next, but it returns no messages where Next would wait for some.
	TryNext(ctx context.Context, most int) ([]Message, error)
}

// StreamOptions are the options of a new stream.
type StreamOptions struct {
	Keyed      bool `json:"keyed"`
	Partitions int  `json:"partitions,omitempty"`
}

// StreamInfo describes a stream in a list of them.
type StreamInfo struct {
	Name  string `json:"stream"`
	Keyed bool   `json:"keyed"`
	// Partitions are separate streams: name/0 and so on.
	Partitions int       `json:"partitions,omitempty"`
	Created    time.Time `json:"created"`
}

// StreamDetails describes one stream.
type StreamDetails struct {
	StreamInfo
	Head int64 `json:"head"` // position of the last message
}

// GroupInfo describes a group of a stream.
type GroupInfo struct {
	Name   string `json:"group"`
	Offset int64  `json:"offset"`
	Lag    int64  `json:"lag"` // positions between the offset and the head
}
