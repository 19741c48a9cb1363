// Package budget bounds the memory that clients make a server hold. It counts
// bytes; it allocates none.
//
// A server has one [Budget]. Each connection and each HTTP request has one
// [Holder], from [Budget.Open] to [Holder.Close]:
//
//	h := b.Open(func() { conn.Evict(websocket.StatusTryAgainLater, budget.ErrEvicted.Error()) })
//	defer h.Close()
//
//	if err := h.Reserve(ctx, budget.Page, size); err != nil { // before the bytes are made
//		return err
//	}
//	page := read(size)
//	…
//	h.Release(budget.Page, size) // once the bytes are gone
//
// [Holder.Reserve] is for bytes that can be made later. [Holder.Take] is for bytes
// that are there already or cannot wait. If the real size differs from the
// reserved one, Take or Release the difference.
//
// # Policy
//
// Up to the high-water mark, three quarters of the limit, everything is granted at
// once. The rest is for small holders: above the mark Reserve waits if the
// holder would have more than its fair share. The fair share is max-min fair: cut
// to it, the demands of all holders would fill the budget up to the mark. Waiting
// holders are served smallest first.
//
// Holders of one client are a group ([Holder.Join]): the fair share is that of a group, and its size is what counts for all its members. So a client
// with many connections gets no more than a client with one. A group that wants more than its share divides it among its members in the same way.
//
// Waiting does not help if holders never release their memory. So one or several
// holders are evicted when a Reserve has waited for [Patience], or when the limit
// is reached. The greediest holder of the greediest group is evicted first. The greed of a holder is the product of
// bytes held and time since it released something, and that of a group is the sum. Its pending Reserves fail with
// [ErrEvicted]; its owner ends the connection or request, which calls Close. Nobody within the fair share is evicted as long as what evicted holders
// still hold is enough.
//
// A nil *Budget opens a nil *Holder, and a nil *Holder counts and bounds nothing.
// All methods are safe for concurrent use.
package budget

import (
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// Kind says what bytes are held for.
type Kind uint8

// The kinds, with their names as labels of a metric.
const (
	Assembly Kind = iota // "assembly": WebSocket messages that are not complete
	Output               // "output": answers and frames that the peer has not taken
	Page                 // "page": what was read from PostgreSQL, and frames made of it
	CatchUp              // "catch_up": history sent to members that join a room
	Body                 // "body": bodies of HTTP requests and answers
	Ingest               // "ingest": messages that wait for their commit
	Follow               // "follow": subscriptions and consumptions, also idle ones

	// Kinds is the number of kinds.
	Kinds = int(Follow) + 1
)

var kindNames = [Kinds]string{"assembly", "output", "page", "catch_up", "body", "ingest", "follow"}

func (k Kind) String() string { return kindNames[k] }

const (
	// Patience is how long a Reserve waits before the greediest holder is evicted.
	Patience = 2 * time.Second

	// tick is how often the waiting Reserves are examined.
	tick = 50 * time.Millisecond

	// smallest is the number of bytes up to which a holder may always reserve while
	// the limit is not reached, for any number of holders.
	smallest = 64 << 10
)

var (
	// ErrEvicted is Reserve's error for a holder that was evicted. Its text is
	// fit for the client: it is at most 123 bytes, the most that a Close frame
	// can carry.
	ErrEvicted = errors.New("the server is short of memory and this client held the most; try again later")

	// ErrTooLarge is Reserve's error for more bytes than the budget can ever
	// grant to one holder.
	ErrTooLarge = errors.New("budget: more than the whole memory budget; raise --max-memory")

	// ErrClosed is Reserve's error after Close.
	ErrClosed = errors.New("budget: the holder is closed")
)

// Budget counts what all holders hold.
type Budget struct {
	limit, mark int64

	held     atomic.Int64 // all bytes counted
	evicting atomic.Int64 // of these, bytes of evicted holders, which will be released
	byKind   [Kinds]atomic.Int64
	excess   atomic.Int64 // bytes released that were not held

	pressed atomic.Bool // some Reserve waits: every change goes through mu

	mu           sync.Mutex
	holders      []*Holder
	groups       map[string]*group
	queue        waitQueue
	pressedSince time.Time
	timer        *time.Timer // evict; nil if never used
	share        int64       // the fair share as of shareAt
	shareAt      time.Time
	waits        int64
	evictions    int64
}

// New returns a budget of limit bytes. With a limit of 0 or less it counts bytes but
// does not bound them.
func New(limit int64) *Budget {
	if limit <= 0 {
		limit = math.MaxInt64
	}
	return &Budget{limit: limit, mark: limit / 4 * 3, groups: make(map[string]*group)}
}

// Open registers a holder. evict is called at most once, in a new goroutine, when the
// holder has to release its memory; it must make sure that Close is called soon. It
// may still be called while Close runs. It may be nil.
func (b *Budget) Open(evict func()) *Holder {
	if b == nil {
		return nil
	}
	h := &Holder{b: b, onEvict: evict, own: group{members: 1}}
	h.group = &h.own
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.pressed.Load() {
		h.releasedAt = time.Now()
	}
	h.index = len(b.holders)
	b.holders = append(b.holders, h)
	return h
}

// remove takes h out of b.holders. b.mu is held.
func (b *Budget) remove(h *Holder) {
	last := len(b.holders) - 1
	b.holders[h.index] = b.holders[last]
	b.holders[h.index].index = h.index
	b.holders[last] = nil
	b.holders = b.holders[:last]
	b.leave(h.group)
}

// Stats holds the counts of a budget.
type Stats struct {
	Limit     int64        // bytes; math.MaxInt64 if there is none
	Held      int64        // bytes, of all kinds
	ByKind    [Kinds]int64 // bytes
	Holders   int          // open
	Largest   int64        // bytes that the largest of them holds
	Waiting   int          // Reserves that wait now
	Waits     int64        // Reserves that had to wait, so far
	Evictions int64        // holders evicted, so far
	Excess    int64        // bytes released that were not held: 0 unless a caller has a bug
}

// Limit returns the limit: math.MaxInt64 if there is none.
func (b *Budget) Limit() int64 {
	if b == nil {
		return math.MaxInt64
	}
	return b.limit
}

// Held returns how many bytes are held for a kind.
func (b *Budget) Held(k Kind) int64 {
	if b == nil {
		return 0
	}
	return b.byKind[k].Load()
}

// Stats returns the counts. It walks all holders.
func (b *Budget) Stats() Stats {
	if b == nil {
		return Stats{Limit: math.MaxInt64}
	}
	s := Stats{Limit: b.limit, Held: b.held.Load(), Excess: b.excess.Load()}
	for k := range s.ByKind {
		s.ByKind[k] = b.byKind[k].Load()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	s.Holders, s.Waiting, s.Waits, s.Evictions = len(b.holders), len(b.queue), b.waits, b.evictions
	for _, h := range b.holders {
		s.Largest = max(s.Largest, h.total.Load())
	}
	return s
}

// outsideHeap is memory that Go's soft limit does not cover: the program's own
// pages, and the amount by which the heap exceeds the limit before the collector has
// run. Decision 19 has the figures.
const outsideHeap = 64 << 20

// SoftLimit returns Go's soft memory limit (debug.SetMemoryLimit) for a process that
// may use maxMemory bytes.
func SoftLimit(maxMemory int64) int64 { return maxMemory - min(maxMemory/4, outsideHeap) }

// ClientShare returns the limit for New in a process that may use maxMemory bytes. It
// is half of the soft limit. The other half is for garbage that is not collected yet,
// and for memory that is not counted.
func ClientShare(maxMemory int64) int64 { return SoftLimit(maxMemory) / 2 }
