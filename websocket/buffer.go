package websocket

import (
	"math/bits"
	"sync"
)

// buffer is bytes on loan from the shared pool. A read buffer carries the list
// of the messages inside it, so an idle connection holds neither.
type buffer struct {
	b    []byte
	msgs []Message
}

const (
	minClass = 10 // 1 KiB
	maxClass = 22 // 4 MiB; more is left to the garbage collector

	// maxPooledMessages keeps a list grown by a flood of tiny frames out of
	// the pool (32 bytes each).
	maxPooledMessages = 4096
)

// buffers has one pool for each power of two from 1 KiB to 4 MiB. sync.Pool
// rather than a free list of our own: getting and returning a buffer costs no
// lock, as each processor has its own, and what a burst needed is freed by the
// next two garbage collections. The buffers in use are bounded by each
// connection's limits.
var buffers [maxClass + 1]sync.Pool

// getBuffer returns a buffer of at least size bytes, which are not cleared.
func getBuffer(size int) *buffer {
	class := max(bits.Len(uint(size-1)), minClass)
	if class > maxClass {
		return &buffer{b: make([]byte, size)}
	}
	if x, ok := buffers[class].Get().(*buffer); ok {
		return x
	}
	return &buffer{b: make([]byte, 1<<class)}
}

// put gives the buffer back. Nobody may hold a part of it any more.
func (x *buffer) put() {
	x.b = x.b[:cap(x.b)]
	class := bits.Len(uint(len(x.b) - 1))
	if class > maxClass || len(x.b) != 1<<class {
		return
	}
	if cap(x.msgs) > maxPooledMessages {
		x.msgs = nil
	}
	buffers[class].Put(x)
}
