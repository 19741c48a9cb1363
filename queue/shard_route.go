package queue

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
)

// ErrCrossPartition: the messages of one call have different priorities, or keys of
// different partitions, and cannot be stored all or none. Enqueue them with several
// calls, or with EnqueueTx.
var ErrCrossPartition = errors.New("queue: messages of one call belong to several priorities or partitions")

// PartitionOf is the partition of messages with that key: the first four bytes of its
// SHA-256 as a big-endian number, modulo the number of partitions. It never changes.
// Of a queue without partitions it is 0.
func (q *Queue) PartitionOf(key string) int {
	if !q.ordered() {
		return 0
	}
	sum := sha256.Sum256([]byte(key))
	return int(binary.BigEndian.Uint32(sum[:4]) % uint32(q.opts.Partitions))
}

// route returns the member that a message must go to; ok is false if any member
// is right.
func (q *Queue) route(m *Message) (index int, ok bool, err error) {
	if m.Priority != 0 && (m.Priority < 0 || m.Priority >= q.opts.Priorities) {
		return 0, false, fmt.Errorf("%w priority: %d, want 0 to %d", ErrInvalid, m.Priority, max(q.opts.Priorities-1, 0))
	}
	switch {
	case q.opts.Priorities > 0:
		return m.Priority, true, nil
	case q.ordered() && m.Key == "":
		return 0, false, nil
	}
	return q.PartitionOf(m.Key), true, nil
}

// routeAll returns the member that all the messages go to. Messages without a
// key go with the others; if none has a key, elsewhere chooses the member.
func (q *Queue) routeAll(msgs []Message, elsewhere func() int) (to int, err error) {
	found := false
	for i := range msgs {
		index, ok, err := q.route(&msgs[i])
		if err != nil {
			return 0, err
		}
		if ok && found && index != to {
			return 0, fmt.Errorf("%w: %d and %d", ErrCrossPartition, to, index)
		}
		if ok {
			to, found = index, true
		}
	}
	if !found {
		to = elsewhere()
	}
	return to, nil
}
