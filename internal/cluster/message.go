package cluster

import (
	"encoding/binary"
	"errors"
	"time"
)

// The messages between nodes. Numbers are big-endian; a name is its length in one byte, and its bytes.
//
//	batch      'b' node(8) name epoch(8) age(4, ms) first(8) count(4) frames
//	open       'o' node(8) name epoch(8) age(4, ms) next(8): the room begins on this node; others answer with a digest
//	digest     'd' node(8), then for each room: name epoch(8) age(4, ms) next(8)
//	heartbeat  'h' node(8) number(8) settings(8)
//	question   'q' node(8) number(8), then slots, 2 bytes each: the node asks another for the numbers of all rooms in the slots;
//	           number is that of the heartbeat because of which it asks
//	answered   'a' node(8) number(8): the digests that answer the question have been sent
//	watch      'w' node(8), then for each room: flags(1), name. The node wants to know who is in the room; flag 1: all names
//	presence   'p' node(8) name version(8) flags(1) count(4), then twice, for who has joined and who has left: how many(2), names.
//	           Flag 1: those who have joined are all, and with flag 2 there are more
//	tail       't' node(8) stream(4) page: what a node has committed to a stream, see package stream
//	note       'n' node(8) note: what a node tells all others once a second
//	ask        '?' node(8) number(8) question
//	answer     '!' node(8) number(8) answer, with the number of the ask
const (
	kindBatch     = 'b'
	kindOpen      = 'o'
	kindDigest    = 'd'
	kindHeartbeat = 'h'
	kindQuestion  = 'q'
	kindAnswered  = 'a'
	kindWatch     = 'w'
	kindPresence  = 'p'
	kindTail      = 't'
	kindNote      = 'n'
	kindAsk       = '?'
	kindAnswer    = '!'
)

// MaxOverhead is the most that the message between nodes is larger than the message of a client which it carries, in bytes.
const MaxOverhead = 1 << 10

var errMalformed = errors.New("cluster: malformed message")

func appendHead(dst []byte, kind byte, node uint64) []byte {
	return binary.BigEndian.AppendUint64(append(dst, kind), node)
}

func appendName(dst []byte, name string) []byte { return append(append(dst, byte(len(name))), name...) }

func appendPlace(dst []byte, at place) []byte {
	dst = binary.BigEndian.AppendUint64(dst, at.epoch)
	dst = binary.BigEndian.AppendUint32(dst, uint32(min(at.age.Milliseconds(), 1<<32-1)))
	return binary.BigEndian.AppendUint64(dst, at.first)
}

// reader decodes a message. After a failure all results are zero.
type reader struct {
	rest []byte
	err  error
}

func (r *reader) bytes(n int) []byte {
	if len(r.rest) < n || r.err != nil {
		r.err = errMalformed
		return make([]byte, n)
	}
	b := r.rest[:n]
	r.rest = r.rest[n:]
	return b
}

func (r *reader) byte() byte     { return r.bytes(1)[0] }
func (r *reader) uint16() uint16 { return binary.BigEndian.Uint16(r.bytes(2)) }
func (r *reader) uint32() uint32 { return binary.BigEndian.Uint32(r.bytes(4)) }
func (r *reader) uint64() uint64 { return binary.BigEndian.Uint64(r.bytes(8)) }
func (r *reader) name() string   { return string(r.bytes(int(r.byte()))) }

// names decodes a list of names.
func (r *reader) names() (names []string) {
	for range r.uint16() {
		if r.err != nil {
			return nil
		}
		names = append(names, r.name())
	}
	return names
}

func (r *reader) place() (p place) {
	p.epoch = r.uint64()
	p.age = time.Duration(r.uint32()) * time.Millisecond
	p.first = r.uint64()
	return p
}

// head decodes the begin of each message.
func (r *reader) head() (kind byte, node uint64) { return r.byte(), r.uint64() }
