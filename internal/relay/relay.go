// Package relay says how the nodes of a cluster send each other messages: by topic, at most once, and each sender's in order.
//
// Nothing here keeps a message. A message is lost while two nodes can't reach each other, and may be lost when a connection
// between them breaks; users of the package number what must not be lost without notice.
//
// Package natsrelay is the implementation, and package relaytest a fake with seeded faults.
package relay

import "errors"

// ErrTooLarge means that a message is larger than the relay takes.
var ErrTooLarge = errors.New("relay: message too large")

// Relay sends messages to other nodes. Its methods may be called from any goroutine.
type Relay interface {
	// Publish sends a message to all other nodes that listen to the topic now. It does not wait for any of them, and keeps
	// no reference to the message. A topic consists of letters, digits and dots.
	Publish(topic string, message []byte) error
	// Listen calls a function with each message of the topic that another node publishes, until stop. All functions are
	// called by one goroutine, in the order in which the messages have arrived, so they must not block. They must not keep
	// the message. After stop, the function may still be called for messages that arrived before.
	Listen(topic string, receive func(message []byte)) (stop func(), err error)
}
