// Package relaytest is a network of relays in memory that a test moves step by step: what is sent waits until the test delivers it,
// and connections can be cut.
package relaytest

import (
	"bytes"
	"maps"
	"math/rand/v2"
	"slices"
)

// Network connects nodes, each with all others. Nothing in it is safe for concurrent use.
type Network struct {
	nodes []*Node
}

// Node is one relay.
type Node struct {
	network   *Network
	listeners map[string][]*listener
	to        []*way // to each node, by its index; nil for itself
	index     int
}

type listener struct{ receive func([]byte) }

// way is one direction of a connection: a queue, in order.
type way struct {
	from, to *Node
	cut      bool
	queue    []item
	// known are the topics of which from knows that to listens to them.
	known map[string]bool
}

// item is a message, or the news that a node listens to a topic or not.
type item struct {
	topic   string
	message []byte
	news    bool
	listens bool
}

// New returns a network of so many nodes.
func New(nodes int) *Network {
	n := &Network{}
	for i := range nodes {
		n.nodes = append(n.nodes, &Node{network: n, index: i, listeners: make(map[string][]*listener)})
	}
	for _, from := range n.nodes {
		for _, to := range n.nodes {
			w := &way{from: from, to: to, known: make(map[string]bool)}
			if from == to {
				w = nil
			}
			from.to = append(from.to, w)
		}
	}
	return n
}

// Node returns a node by its index.
func (n *Network) Node(index int) *Node { return n.nodes[index] }

// Publish implements relay.Relay.
func (n *Node) Publish(topic string, message []byte) error {
	for _, w := range n.to {
		if w != nil && !w.cut && w.known[topic] {
			w.queue = append(w.queue, item{topic: topic, message: bytes.Clone(message)})
		}
	}
	return nil
}

// Listen implements relay.Relay.
func (n *Node) Listen(topic string, receive func([]byte)) (stop func(), err error) {
	l := &listener{receive}
	n.listeners[topic] = append(n.listeners[topic], l)
	n.tell(topic)
	return func() {
		n.listeners[topic] = slices.DeleteFunc(n.listeners[topic], func(o *listener) bool { return o == l })
		n.tell(topic)
	}, nil
}

// tell tells all others whether the node listens to a topic.
func (n *Node) tell(topic string) {
	for _, w := range n.to {
		if w != nil && !w.cut {
			w.queue = append(w.queue, item{topic: topic, news: true, listens: len(n.listeners[topic]) > 0})
		}
	}
}

// Cut breaks the connection of two nodes, in both directions, as a broken TCP connection does: what is under way is lost, from a
// random message on, and what is sent before Heal.
func (n *Network) Cut(a, b int, random *rand.Rand) {
	for _, w := range n.ways(a, b) {
		w.cut = true
		w.queue = w.queue[:random.IntN(len(w.queue)+1)]
		clear(w.known)
	}
}

// Heal mends the connection. Each node then tells the other again to what it listens.
func (n *Network) Heal(a, b int) {
	for _, w := range n.ways(a, b) {
		if !w.cut {
			continue
		}
		w.cut = false
		for _, topic := range slices.Sorted(maps.Keys(w.from.listeners)) { // so that a seed is one history
			w.queue = append(w.queue, item{topic: topic, news: true, listens: len(w.from.listeners[topic]) > 0})
		}
	}
}

func (n *Network) ways(a, b int) []*way { return []*way{n.nodes[a].to[b], n.nodes[b].to[a]} }

// Step delivers the first message of a random connection. It returns false if nothing is under way.
func (n *Network) Step(random *rand.Rand) bool {
	var waiting []*way
	for _, from := range n.nodes {
		for _, w := range from.to {
			if w != nil && len(w.queue) > 0 {
				waiting = append(waiting, w)
			}
		}
	}
	if len(waiting) == 0 {
		return false
	}
	w := waiting[random.IntN(len(waiting))]
	first := w.queue[0]
	w.queue = w.queue[1:]
	if first.news {
		w.to.to[w.from.index].known[first.topic] = first.listens
		return true
	}
	for _, l := range slices.Clone(w.to.listeners[first.topic]) {
		l.receive(first.message)
	}
	return true
}
