package bench

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"sync"
	"time"
)

// MinStamped is the size of a stamped payload without filler: its writer, its
// number and its time.
const MinStamped = 4 + 8 + 8

// AppendStamped appends the payload of a writer's message seq, from 0 on: 32
// bits of writer, 64 of seq, 64 of the time in nanoseconds, all big endian,
// then the same filler as in AppendPayload, up to size bytes.
func AppendStamped(dst []byte, writer, seq int, at time.Time, size int) []byte {
	start := len(dst)
	dst = binary.BigEndian.AppendUint32(dst, uint32(writer))
	dst = binary.BigEndian.AppendUint64(dst, uint64(seq))
	dst = binary.BigEndian.AppendUint64(dst, uint64(at.UnixNano()))
	for i := len(dst) - start; i < size; i++ {
		dst = append(dst, digits[(i*7)%64])
	}
	return dst
}

// ParseStamped is the inverse of AppendStamped. pattern is a payload of
// AppendStamped; ok is false if p does not have its size and filler.
func ParseStamped(p, pattern []byte) (writer, seq int, at time.Time, ok bool) {
	if len(p) != len(pattern) || len(p) < MinStamped || !bytes.Equal(p[MinStamped:], pattern[MinStamped:]) {
		return 0, 0, time.Time{}, false
	}
	writer, seq = int(binary.BigEndian.Uint32(p)), int(binary.BigEndian.Uint64(p[4:]))
	return writer, seq, time.Unix(0, int64(binary.BigEndian.Uint64(p[12:]))), true
}

// DeliveryChecker records which messages of the writers were read. Safe for
// concurrent use.
type DeliveryChecker struct {
	mu      sync.Mutex
	writers []pages
	foreign int // messages that no writer sent
}

// pages is a bitmap of the messages read from one writer.
type pages struct {
	read                  []uint64 // one bit for each number
	last                  int      // number of the message read last
	count, twice, earlier int
}

// maxStampedSeq limits the memory for a damaged number to 128 MiB.
const maxStampedSeq = 1 << 30

// NewDeliveryChecker returns a DeliveryChecker for that many writers.
func NewDeliveryChecker(writers int) *DeliveryChecker {
	l := &DeliveryChecker{writers: make([]pages, writers)}
	for i := range l.writers {
		l.writers[i].last = -1
	}
	return l
}

// Read records that a message was read.
func (l *DeliveryChecker) Read(writer, seq int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if writer < 0 || writer >= len(l.writers) || seq < 0 || seq >= maxStampedSeq {
		l.foreign++
		return
	}
	w := &l.writers[writer]
	for len(w.read) <= seq/64 {
		w.read = append(w.read, 0)
	}
	switch bit := uint64(1) << (seq % 64); {
	case w.read[seq/64]&bit != 0:
		w.twice++
	default:
		w.read[seq/64] |= bit
		w.count++
	}
	if seq < w.last {
		w.earlier++
	}
	w.last = seq
}

// Foreign records a message that no writer sent.
func (l *DeliveryChecker) Foreign() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.foreign++
}

// Account is the comparison of what was read with what was sent.
type Account struct {
	Read       int `json:"read"` // different messages
	Lost       int `json:"lost"`
	Duplicated int `json:"duplicated"` // read again
	Reordered  int `json:"reordered"`  // read after a later one of the same writer
	Foreign    int `json:"foreign"`    // never sent
}

// OK reports whether every message was read exactly once. It does not check the order.
func (a Account) OK() bool { return a.Lost == 0 && a.Duplicated == 0 && a.Foreign == 0 }

func (a Account) String() string {
	return fmt.Sprintf("%d read, %d lost, %d twice, %d out of order, %d foreign", a.Read, a.Lost, a.Duplicated, a.Reordered, a.Foreign)
}

// Balance compares what was read with the number of messages that each writer sent.
func (l *DeliveryChecker) Balance(sent []int) (a Account) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a.Foreign = l.foreign
	for i := range l.writers {
		w := &l.writers[i]
		n := 0
		if i < len(sent) {
			n = sent[i]
		}
		within := w.upTo(n)
		a.Read += within
		a.Lost += n - within
		a.Foreign += w.count - within
		a.Duplicated += w.twice
		a.Reordered += w.earlier
	}
	return a
}

// upTo returns how many of the first n messages were read.
func (w *pages) upTo(n int) (count int) {
	for seq := range min(n, 64*len(w.read)) {
		if w.read[seq/64]>>(seq%64)&1 != 0 {
			count++
		}
	}
	return count
}
