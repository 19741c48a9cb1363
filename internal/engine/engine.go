package engine

import "context"

// Engine keeps what clients want kept. A part that is nil is not served.
type Engine struct {
	Streams Streams
	Queues  Queues
	Events  Events
	Rooms   Rooms
	// RoomsHead is the position up to which Rooms were written when the engine was opened.
	RoomsHead int64
	// Ingest opens a Source for a connection. onCommit, if not nil, is told how many of its messages are committed.
	Ingest func(onCommit func(committed uint64)) Source
	// Ready returns why the engine cannot do its work just now, or nil. A
	// NotReadyError tells clients the reason. nil is always ready.
	Ready func(ctx context.Context) error
	// Remark returns a line for those who ask an engine that is ready, or "".
	Remark func() string
}

// Source takes the messages of one connection.
type Source interface {
	// Submit accepts payloads in order and copies them; it waits while the
	// engine has enough to do. An error says that a message could not be stored, and one
	// that wraps context.Canceled that messages may be stored or not.
	Submit(ctx context.Context, payloads [][]byte) error
	// Wait returns when everything submitted is committed, or an error as Submit
	// does.
	Wait(ctx context.Context) error
}
