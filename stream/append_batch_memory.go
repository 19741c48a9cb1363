package stream

import "sync"

// batchMemory is memory that batches share: there are as many pieces as are filled at a
// time, and none for the thousands of streams to which nobody appends.
var batchMemory = sync.Pool{New: func() any { return new([]byte) }}

// lend gives the batch, which is empty, memory if it has none.
func (b *rowBatch) lend() {
	if b.lent == nil {
		b.lent = batchMemory.Get().(*[]byte)
		b.buf = (*b.lent)[:0]
	}
}

// giveBack takes the memory from the batch, and lets others have it if it is at most so
// many bytes.
func (b *rowBatch) giveBack(keep int) {
	if b.lent != nil && cap(b.buf) <= keep {
		*b.lent = b.buf[:0]
		batchMemory.Put(b.lent)
	}
	b.lent, b.buf = nil, nil
}
