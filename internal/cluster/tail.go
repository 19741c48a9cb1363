package cluster

import (
	"encoding/binary"
	"slices"
	"strconv"
	"sync"
)

// tailTopics is the number of topics for the streams of a database.
const tailTopics = 1024

// Tail passes committed messages of streams between the nodes that use one database. It is stream.Peers. Its methods may be
// called from any goroutine.
type Tail struct {
	node *Node
	name string // of the database

	mu        sync.RWMutex
	receivers map[int32][]*receiver
	topics    map[int32]*listener
}

// receiver gets the pages of a stream.
type receiver struct{ receive func(page []byte) }

// Tail returns the Tail of a database. Its name consists of letters and digits; nodes that use one database have the same name
// for it, and others do not.
func (n *Node) Tail(database string) *Tail {
	return &Tail{node: n, name: database, receivers: make(map[int32][]*receiver), topics: make(map[int32]*listener)}
}

// topicOf returns the number and the name of a stream's topic.
func (t *Tail) topicOf(stream int32) (number int32, name string) {
	number = int32(uint32(stream) % tailTopics)
	return number, "tail." + t.name + "." + strconv.Itoa(int(number))
}

// Send implements stream.Peers. A page that is too large for the relay is lost.
func (t *Tail) Send(stream int32, page []byte) {
	if t.node.others.Load() == 0 {
		return
	}
	scratch := batches.Get().(*[]byte)
	message := binary.BigEndian.AppendUint32(appendHead((*scratch)[:0], kindTail, t.node.id), uint32(stream))
	message = append(message, page...)
	_, topic := t.topicOf(stream)
	t.node.relay.Publish(topic, message)
	if cap(message) <= keepBatch {
		*scratch = message
		batches.Put(scratch)
	}
}

// Listen implements stream.Peers.
func (t *Tail) Listen(stream int32, receive func(page []byte)) (stop func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := &receiver{receive}
	t.receivers[stream] = append(slices.Clip(t.receivers[stream]), r) // received may be reading the old one
	number, topic := t.topicOf(stream)
	on := t.topics[number]
	if on == nil {
		stop, err := t.node.relay.Listen(topic, t.node.decoded(t.received))
		if err != nil {
			stop = func() {} // the relay is closed
		}
		on = &listener{stop: stop}
		t.topics[number] = on
	}
	on.links++
	return sync.OnceFunc(func() { t.stop(stream, r) })
}

// stop ends one Listen.
func (t *Tail) stop(stream int32, r *receiver) {
	t.mu.Lock()
	defer t.mu.Unlock()
	rest := slices.DeleteFunc(slices.Clone(t.receivers[stream]), func(other *receiver) bool { return other == r })
	if t.receivers[stream] = rest; len(rest) == 0 {
		delete(t.receivers, stream)
	}
	number, _ := t.topicOf(stream)
	on := t.topics[number]
	if on.links--; on.links == 0 {
		on.stop()
		delete(t.topics, number)
	}
}

// received handles a page of another node.
func (t *Tail) received(kind byte, r *reader, _ uint64) {
	if kind != kindTail {
		r.err = errMalformed
		return
	}
	stream := int32(r.uint32())
	if r.err != nil {
		return
	}
	t.mu.RLock()
	receivers := t.receivers[stream]
	t.mu.RUnlock()
	for _, to := range receivers {
		to.receive(r.rest)
	}
}
