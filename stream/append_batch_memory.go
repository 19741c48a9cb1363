package stream

import "sync"

// batchMemory is memory that batches share: one buffer for each batch that is in use,
// and none for the thousands of streams without appends.
var batchMemory = sync.Pool{New: func() any { return new([]byte) }}

// lend gives the batch, which is empty, memory if it has none.
func (b *rowBatch) lend() {
	if b.lent == nil {
		b.lent = batchMemory.Get().(*[]byte)
		b.buf = (*b.lent)[:0]
	}
}

// giveBack takes the memory from the batch, and returns it to the pool if it is at most
// keep bytes.
func (b *rowBatch) giveBack(keep int) {
	if b.lent != nil && cap(b.buf) <= keep {
		*b.lent = b.buf[:0]
		batchMemory.Put(b.lent)
	}
	b.lent, b.buf = nil, nil
}
