package engine

import "context"

// Engine stores the data of clients. A part that is nil is not served.
type Engine struct {
	Streams Streams
	Queues  Queues
	Events  Events
	Rooms   Rooms
	// Schedules write messages to Streams and Queues at times.
	Schedules Schedules
	// RoomsHead is the position of the last message of Rooms when the engine was opened.
	RoomsHead int64
	// Ingest opens a Source for a connection. onCommit, if not nil, is called with the
	// number of its committed messages.
	Ingest func(onCommit func(committed uint64)) Source
	// Ready returns why the engine cannot work now, or nil. A NotReadyError
	// tells clients the reason. A nil func means always ready.
	Ready func(ctx context.Context) error
	// Remark returns a line that /readyz adds when the engine is ready, or "".
	Remark func() string
	// Database tells the state of the database. With an error, only the connections are known. A nil func means that there is none.
	Database func(ctx context.Context) (Database, error)
}

// Source receives the messages of one connection.
type Source interface {
	// Submit accepts payloads in order and copies them; it waits while the engine is at
	// its limit. An error means that a message could not be stored; if it wraps
	// context.Canceled, messages may be stored or not.
	Submit(ctx context.Context, payloads [][]byte) error
	// Wait returns nil when everything submitted is committed, or an error as
	// Submit does.
	Wait(ctx context.Context) error
}
