package engine

import (
	"context"
	"encoding/json"
	"time"
)

// Message is one message of a stream or queue.
type Message struct {
	// Position and Time are the store's.
	Position int64
	Time     time.Time
	// Key is valid UTF-8; empty is none.
	Key string
	// Headers is a JSON object, or empty.
	Headers json.RawMessage
	Payload []byte
}

// RequestID names a request, so that it can be repeated.
type RequestID struct {
	Client   string
	Sequence int64
}

// Place is where a message is.
type Place struct {
	Partition int // -1 where there are none
	Position  int64
	// Of a request with a RequestID: how many messages it has stored, and whether an
	// earlier call did so.
	Count     int
	Duplicate bool
}

// Streams are named logs. A ctx bounds the call it is given to, and nothing beyond.
type Streams interface {
	// Publish accepts messages, which it may keep, and waits while the store
	// has enough to do. If it returns nil it calls done once: after the commit with the
	// place of the first, the others following without a gap, or with why none is
	// stored. done is brief and may be called before Publish returns. Messages
	// that one caller publishes to a stream are stored in the order of its calls,
	// in each partition. With as, a repetition of the client's request stores
	// nothing and is told the place of the first.
	Publish(ctx context.Context, stream string, as *RequestID, messages []Message, done func(first Place, err error)) error
	// Subscribe begins to follow a stream.
	Subscribe(ctx context.Context, stream string, from Start) (Subscription, error)
	// Commit moves a group's offset up to a position and returns where it is,
	// which may be further, when that is committed.
	Commit(ctx context.Context, stream, group string, position int64) (offset int64, err error)
	// CommitLater is Commit without a promise; it does not wait for the commit.
	CommitLater(ctx context.Context, stream, group string, position int64) error
	// Read returns messages after a position, in order, with a key if that is
	// not nil: at most limit, and fewer if they are large, but one if there is one.
	Read(ctx context.Context, stream string, key *string, after int64, limit int) ([]Message, error)

	// Create makes a stream unless there is one, and returns its options. One with
	// other options is ErrExists, unless opts is nil: then it is made with the
	// engine's defaults, or may have any.
	Create(ctx context.Context, name string, opts *StreamOptions) (StreamOptions, error)
	List(ctx context.Context) ([]StreamInfo, error)
	Info(ctx context.Context, name string) (StreamDetails, error)
	// Groups returns groups of a stream, ordered by the bytes of their names: at most
	// limit of those after a name, or from the first on if that is empty.
	Groups(ctx context.Context, name, after string, limit int) ([]GroupInfo, error)
	Drop(ctx context.Context, name string) error
}

// Start is where a subscription begins: in a group, at a time, or after a
// position, the first of these that is set.
type Start struct {
	Group string    // at its committed offset; made if there is none
	At    time.Time // with the first message of that time or later
	End   bool      // after what is there
	After int64     // 0 is the beginning
}

// Subscription follows a stream. Next is for one goroutine; Close may be called
// by another.
type Subscription interface {
	// Position is that of the last message of Next, before that where it begins.
	Position() int64
	// Next returns the next messages in order, from one to most, without gap or
	// repetition, bounded in bytes by the store. It waits until there is one, also
	// while the database is away. They are not changed. Any error but ctx's is for
	// good.
	Next(ctx context.Context, most int) ([]Message, error)
	Close()
}

// StreamOptions are given when a stream is made.
type StreamOptions struct {
	Keyed      bool `json:"keyed"`
	Partitions int  `json:"partitions,omitempty"`
}

// StreamInfo describes a stream in a list of them.
type StreamInfo struct {
	Name  string `json:"stream"`
	Keyed bool   `json:"keyed"`
	// Partitions are streams of their own: name/0 and so on.
	Partitions int       `json:"partitions,omitempty"`
	Created    time.Time `json:"created"`
}

// StreamDetails is what is told of one stream.
type StreamDetails struct {
	StreamInfo
	Head int64 `json:"head"` // position of the last message
}

// GroupInfo describes a group of a stream.
type GroupInfo struct {
	Name   string `json:"group"`
	Offset int64  `json:"offset"`
	Lag    int64  `json:"lag"` // positions up to the head
}
