package websocket

import (
	"math/bits"
	"sync"
)

// buffer holds bytes from the shared pool. A read buffer also has the list of
// the messages inside it, so an idle connection holds neither.
type buffer struct {
	b    []byte
	msgs []Message
}

const (
	minClass = 10 // 1 KiB
	maxClass = 22 // 4 MiB; more is left to the garbage collector

	// maxPooledMessages is the longest list that goes back to the pool (32
	// bytes per message): a flood of tiny frames can make a list very long.
	maxPooledMessages = 4096
)

// buffers has one pool for each power of two from 1 KiB to 4 MiB. sync.Pool
// rather than a free list: getting and returning a buffer takes no lock, as
// each processor has its own list, and the next two garbage collections free
// the buffers that a burst needed. The limits of each connection bound the
// buffers in use.
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

// put returns the buffer to the pool. Nobody may use any part of it afterwards.
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
