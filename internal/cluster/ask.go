package cluster

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// askTimeout is how long a node waits for the answer to a question, and how long another one may work on it.
	askTimeout = 5 * time.Second
	// answering is how many questions are answered at a time. More are dropped: those who ask get no answer.
	answering = 4096
)

// Errors of Ask.
var (
	ErrNoNode   = errors.New("cluster: there is no such node")
	ErrNoAnswer = errors.New("cluster: the node does not answer")
)

// asks are the questions of this node, and its answers to those of others.
type asks struct {
	next    atomic.Uint64
	slots   chan struct{}
	running sync.WaitGroup

	mu      sync.Mutex
	waiting map[uint64]chan []byte
	reply   func(ctx context.Context, question []byte) []byte
}

// Name returns the name of this node, which Ask takes.
func (n *Node) Name() string { return NodeName(n.id) }

// NodeName returns the name of the node with that id.
func NodeName(id uint64) string { return fmt.Sprintf("%016x", id) }

// Reply has a function answer the questions of other nodes, in goroutines of its own. Before that, they get no answer.
func (n *Node) Reply(reply func(ctx context.Context, question []byte) []byte) {
	n.asks.mu.Lock()
	defer n.asks.mu.Unlock()
	n.asks.reply = reply
}

// idOf returns the id of the node that has a name, if one could have it.
func idOf(name string) (id uint64, ok bool) {
	id, err := strconv.ParseUint(name, 16, 64)
	return id, err == nil && name == NodeName(id)
}

// Ask asks another node, once. Without an answer within 5 s the error is ErrNoAnswer: the node may have done what it was asked, or not. ErrNoNode means that
// there is no such node, or not any more, and that it was not asked.
func (n *Node) Ask(ctx context.Context, node string, question []byte) ([]byte, error) {
	id, ok := idOf(node)
	if !ok {
		return nil, ErrNoNode
	}
	if err := n.await(ctx, id); err != nil {
		return nil, err
	}
	number, answered := n.asks.next.Add(1), make(chan []byte, 1)
	n.asks.mu.Lock()
	n.asks.waiting[number] = answered
	n.asks.mu.Unlock()
	defer func() {
		n.asks.mu.Lock()
		defer n.asks.mu.Unlock()
		delete(n.asks.waiting, number)
	}()
	if err := n.relay.Publish(nodeTopic(id), append(n.aside(kindAsk, number), question...)); err != nil {
		return nil, err
	}
	timeout := time.NewTimer(askTimeout)
	defer timeout.Stop()
	select {
	case answer := <-answered:
		return answer, nil
	case <-timeout.C:
		return nil, ErrNoAnswer
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// await waits until a node is heard. One that has started just now, or this one has, is heard within two heartbeats.
func (n *Node) await(ctx context.Context, id uint64) error {
	const look = 20 * time.Millisecond
	for waited := time.Duration(0); !n.hears(id); waited += look {
		if waited > 2*tick {
			return ErrNoNode
		}
		select {
		case <-time.After(look):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// Heard returns the names of the other nodes that have been heard lately, in any order.
func (n *Node) Heard() (names []string) {
	n.peersMu.Lock()
	defer n.peersMu.Unlock()
	for id := range n.peers {
		names = append(names, NodeName(id))
	}
	return names
}

// Hears reports whether another node has been heard lately.
func (n *Node) Hears(node string) bool {
	id, ok := idOf(node)
	return ok && n.hears(id)
}

// hears reports whether another node has been heard lately.
func (n *Node) hears(id uint64) bool {
	n.peersMu.Lock()
	defer n.peersMu.Unlock()
	return n.peers[id] != nil
}

// aside returns the head of a question or an answer.
func (n *Node) aside(kind byte, number uint64) []byte {
	return binary.BigEndian.AppendUint64(appendHead(nil, kind, n.id), number)
}

// asked answers a question in a separate goroutine.
func (n *Node) asked(from, number uint64, question []byte) {
	n.asks.mu.Lock()
	reply := n.asks.reply
	n.asks.mu.Unlock()
	if reply == nil {
		return
	}
	select {
	case n.asks.slots <- struct{}{}:
	default:
		return
	}
	question = bytes.Clone(question)
	n.asks.running.Go(func() {
		defer func() { <-n.asks.slots }()
		ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
		defer cancel()
		n.relay.Publish(nodeTopic(from), append(n.aside(kindAnswer, number), reply(ctx, question)...))
	})
}

// got passes an answer on to who waits for it.
func (n *Node) got(number uint64, answer []byte) {
	n.asks.mu.Lock()
	defer n.asks.mu.Unlock()
	if waiting := n.asks.waiting[number]; waiting != nil {
		delete(n.asks.waiting, number) // another answer would block
		waiting <- bytes.Clone(answer)
	}
}
