package cluster

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidewire/tidewire/internal/relay"
	"github.com/tidewire/tidewire/internal/room"
)

const (
	// tick is the pause between two heartbeats.
	tick = time.Second
	// goneAfter is after how long without a heartbeat another node counts as gone.
	goneAfter = 7 * time.Second
	// digests is in how many digests a room is after its last batch.
	digests = 3
	// keepLink is for how long a link outlives its room: for so long the numbers go on if the room begins again, and nodes
	// need not be told that this one does not listen any more, and then does again.
	keepLink = time.Minute
	// keepLinks is how many such links are kept at most.
	keepLinks = 10_000

	// maxPeers is how many other nodes are known at most.
	maxPeers = 1000

	heartbeatTopic = "nodes"
)

// Node is this server in a cluster. Its methods may be called from any goroutine.
type Node struct {
	id    uint64
	relay relay.Relay
	now   func() time.Time

	heartbeats atomic.Uint64 // sent
	epochs     atomic.Uint64
	missed     atomic.Uint64
	malformed  atomic.Uint64
	others     atomic.Int64 // number of peers

	active  activeLinks
	watched watchedLinks
	asks    asks
	notes   atomic.Pointer[Notes]

	settings uint64 // see Observe
	observer Observer

	mu     sync.RWMutex
	links  map[string]*link
	slots  map[slot]*listener
	closed []closing // in the order of time

	peersMu sync.Mutex
	peers   map[uint64]*peer
}

// peer is another node.
type peer struct {
	heartbeat uint64 // number of its last heartbeat
	seen      time.Time
	asked     uint64 // the heartbeat because of which it is asked until it answers; 0 if it has answered
	settings  uint64
}

// closing says when a room has ended on this node.
type closing struct {
	link *link
	at   time.Time
}

// listener listens to a slot while it has links.
type listener struct {
	links int
	stop  func()
}

// Stats counts since the start.
type Stats struct {
	Peers     int    // other nodes that are heard now
	Missed    uint64 // frames that other nodes sent and this one did not receive
	Malformed uint64 // messages of other nodes that could not be decoded
}

// NewNode returns the node with that id, which no other node has. It begins to listen; Run makes it heard.
func NewNode(id uint64, r relay.Relay) (*Node, error) { return newNode(id, r, time.Now) }

func newNode(id uint64, r relay.Relay, now func() time.Time) (*Node, error) {
	n := &Node{id: id, relay: r, now: now, links: make(map[string]*link), slots: make(map[slot]*listener), peers: make(map[uint64]*peer)}
	n.watched.links, n.watched.wake = make(map[*link]bool), make(chan struct{}, 1)
	n.asks.slots, n.asks.waiting = make(chan struct{}, answering), make(map[uint64]chan []byte)
	nothing := func(string) {}
	n.observer = Observer{nothing, nothing, nothing}
	for topic, receive := range map[string]func(kind byte, rest *reader, from uint64){heartbeatTopic: n.hear, notesTopic: n.hearNote, nodeTopic(id): n.toThis} {
		if _, err := r.Listen(topic, n.decoded(receive)); err != nil {
			return nil, fmt.Errorf("join the cluster: %w", err)
		}
	}
	return n, nil
}

// decoded returns a function that decodes the head of a message, and counts malformed messages. Messages of this node, which come
// back if two nodes have one id, are dropped.
func (n *Node) decoded(receive func(kind byte, rest *reader, from uint64)) func([]byte) {
	return func(message []byte) {
		r := &reader{rest: message}
		if kind, from := r.head(); r.err == nil && from != n.id {
			receive(kind, r, from)
		}
		if r.err != nil {
			n.malformed.Add(1)
		}
	}
}

// Run sends heartbeats and digests until ctx ends. Then it waits for answers that are being made.
func (n *Node) Run(ctx context.Context) {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	n.beat()
	for {
		select {
		case <-ticker.C:
			n.beat()
		case <-n.watched.wake:
			n.askPresence(false)
		case <-ctx.Done():
			n.sendLastNote()
			n.Reply(nil)
			n.asks.running.Wait()
			return
		}
	}
}

// Stats returns the current counts.
func (n *Node) Stats() Stats {
	n.peersMu.Lock()
	defer n.peersMu.Unlock()
	return Stats{Peers: len(n.peers), Missed: n.missed.Load(), Malformed: n.malformed.Load()}
}

// beat sends a heartbeat and the digests, and forgets what is long gone. The digests come first: a node that hears the heartbeat
// has no hole only if it has them.
func (n *Node) beat() {
	now, number := n.now(), n.heartbeats.Add(1)
	n.digest(now)
	n.mu.Lock()
	n.forget(now)
	n.mu.Unlock()
	if number%askEvery == 0 {
		n.askPresence(true)
	}
	heartbeat := binary.BigEndian.AppendUint64(appendHead(nil, kindHeartbeat, n.id), number)
	n.relay.Publish(heartbeatTopic, binary.BigEndian.AppendUint64(heartbeat, n.settings))
	n.sendNote()
	for _, id := range n.forgetPeers(now) {
		n.observer.Lost(NodeName(id))
	}
}

// forgetPeers forgets the nodes that have not been heard for long, and returns them.
func (n *Node) forgetPeers(now time.Time) (lost []uint64) {
	n.peersMu.Lock()
	defer n.peersMu.Unlock()
	for id, p := range n.peers {
		if now.Sub(p.seen) > goneAfter {
			delete(n.peers, id)
			lost = append(lost, id)
		}
	}
	n.others.Store(int64(len(n.peers)))
	return lost
}

// hear handles a heartbeat.
func (n *Node) hear(_ byte, r *reader, from uint64) {
	number, settings := r.uint64(), r.uint64()
	if r.err != nil {
		return
	}
	n.peersMu.Lock()
	p := n.peers[from]
	begins := p == nil
	if begins && len(n.peers) >= maxPeers {
		n.peersMu.Unlock()
		return
	}
	if begins {
		p = &peer{asked: number}
		n.peers[from] = p
		n.others.Store(int64(len(n.peers)))
	} else if number > p.heartbeat+1 {
		p.asked = number
	}
	p.heartbeat, p.seen = max(p.heartbeat, number), n.now()
	asked := p.asked
	differs := settings != n.settings && (begins || settings != p.settings)
	p.settings = settings
	observer := n.observer
	n.peersMu.Unlock()
	if begins {
		observer.Heard(NodeName(from))
	}
	if differs {
		observer.Differs(NodeName(from))
	}
	if asked > 0 {
		n.ask(from, asked)
	}
}

// nodeTopic is the topic of messages to one node.
func nodeTopic(id uint64) string { return "node." + NodeName(id) }

// toThis handles a message to this node.
func (n *Node) toThis(kind byte, r *reader, from uint64) {
	switch number := r.uint64(); {
	case r.err != nil:
	case kind == kindQuestion:
		n.answer(r, from, number)
	case kind == kindAnswered:
		n.answered(from, number)
	case kind == kindAsk:
		n.asked(from, number, r.rest)
	case kind == kindAnswer:
		n.got(number, r.rest)
	default:
		r.err = errMalformed
	}
}

// answered takes note that another node has answered.
func (n *Node) answered(from, number uint64) {
	n.peersMu.Lock()
	defer n.peersMu.Unlock()
	if p := n.peers[from]; p != nil && p.asked == number {
		p.asked = 0
	}
}

// ask asks another node for its numbers in the rooms of this node.
func (n *Node) ask(node, number uint64) {
	question := binary.BigEndian.AppendUint64(appendHead(nil, kindQuestion, n.id), number)
	n.mu.RLock()
	for s := range n.slots {
		question = binary.BigEndian.AppendUint16(question, uint16(s))
	}
	n.mu.RUnlock()
	n.relay.Publish(nodeTopic(node), question)
}

// answer answers a question.
func (n *Node) answer(r *reader, from, number uint64) {
	asked := make(map[slot]bool, len(r.rest)/2)
	for len(r.rest) > 0 && r.err == nil {
		asked[slot(r.uint16())] = true
	}
	if r.err == nil {
		n.sendDigests(n.now(), n.linksOf(asked))
		n.relay.Publish(nodeTopic(from), binary.BigEndian.AppendUint64(appendHead(nil, kindAnswered, n.id), number))
	}
}

// Connect connects a room with the same room on other nodes. It is for room.Config.
func (n *Node) Connect(name string, in *room.Inlet) room.Outlet { return n.connect(name, in) }

func (n *Node) connect(name string, in inlet) *link {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := n.links[name]
	if l == nil {
		l = &link{node: n, name: name, slot: slotOf(name), epoch: n.epochs.Add(1), begun: n.now(), next: 1}
		n.links[name] = l
		n.listen(l.slot)
	}
	l.open(in, n.heartbeats.Load())
	return l
}

// listen listens to a slot, for one link more. n.mu is held.
func (n *Node) listen(s slot) {
	if on := n.slots[s]; on != nil {
		on.links++
		return
	}
	stop, err := n.relay.Listen(s.topic(), n.receive)
	if err != nil {
		stop = func() {} // the relay is closed
	}
	n.slots[s] = &listener{links: 1, stop: stop}
}

// unlisten undoes listen. n.mu is held.
func (n *Node) unlisten(s slot) {
	on := n.slots[s]
	if on.links--; on.links == 0 {
		on.stop()
		delete(n.slots, s)
	}
}

// ended takes note that a room has ended on this node.
func (n *Node) ended(l *link, at time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.closed = append(n.closed, closing{l, at})
	n.forget(at)
}

// find returns the link of a room, or nil.
func (n *Node) find(name string) *link {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return n.links[name]
}
