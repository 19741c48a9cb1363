package failover

import (
	"fmt"
	"slices"
	"sync"
	"time"
)

// The promises that a run checks.
const (
	PromiseKept     = "nothing acknowledged is lost"
	PromiseOnce     = "no position has two contents"
	PromiseTold     = "every loss is reported to the clients that it concerns"
	PromiseComplete = "subscribers get everything once, in order"
	PromiseSettled  = "every message of the queue is settled, and not delivered again after that"
	PromiseSeats    = "no seat is taken twice"
	PromiseOffsets  = "acknowledged offsets stay"
	PromiseFenced   = "nothing is acknowledged by a former primary"
	PromiseGoesOn   = "every kind of request is answered again after each promotion"
)

// promises returns the promises of a run with synchronous replication (quorum) or without it.
func promises(quorum bool) []string {
	all := []string{PromiseOnce, PromiseComplete, PromiseSettled, PromiseSeats, PromiseFenced, PromiseGoesOn}
	if quorum {
		return append(all, PromiseKept, PromiseOffsets)
	}
	return append(all, PromiseTold)
}

// content identifies what was stored: the client's number in the upper half, the request's number
// in the lower.
type content int64

func contentOf(client, sequence int) content { return content(client)<<32 | content(sequence) }

func (c content) String() string { return fmt.Sprintf("%d %d", c>>32, c&(1<<32-1)) }

// parseContent is the inverse of String.
func parseContent(text []byte) (content, error) {
	var client, sequence int
	if _, err := fmt.Sscanf(string(text), "%d %d", &client, &sequence); err != nil {
		return 0, fmt.Errorf("%q is nobody's: %w", text[:min(len(text), 100)], err)
	}
	return contentOf(client, sequence), nil
}

// ack is an answered request.
type ack struct {
	content  content
	position int64
	sent     time.Time
}

// Ledger records what was sent, acknowledged and delivered. Safe for concurrent use.
type Ledger struct {
	mu         sync.Mutex // guards the fields below
	stores     map[string]*store
	broken     map[string]*breach // by promise
	promotions []promoted
	counts     map[string]int
}

// promoted has the time at which a standby was told to become the primary, and the time at which the former primary
// came back as a second one, if it did.
type promoted struct{ asked, returned time.Time }

// store is a stream, the stream of a queue, or an event store.
type store struct {
	contents map[int64]content // by position, from answers and deliveries
	acks     []ack
}

// breach counts how often a promise was broken, and keeps the first times.
type breach struct {
	count int
	first []string
}

// NewLedger returns an empty Ledger.
func NewLedger() *Ledger {
	return &Ledger{stores: make(map[string]*store), broken: make(map[string]*breach), counts: make(map[string]int)}
}

// Break records that a promise was broken.
func (l *Ledger) Break(promise, format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.breakLocked(promise, format, args...)
}

func (l *Ledger) breakLocked(promise, format string, args ...any) {
	b := l.broken[promise]
	if b == nil {
		b = &breach{}
		l.broken[promise] = b
	}
	if b.count++; len(b.first) < 5 {
		b.first = append(b.first, fmt.Sprintf(format, args...))
	}
}

// Breach returns how often a promise was broken, and descriptions of the first times.
func (l *Ledger) Breach(promise string) (count int, first []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if b := l.broken[promise]; b != nil {
		return b.count, b.first
	}
	return 0, nil
}

// Acknowledged records that a request was answered with a position.
func (l *Ledger) Acknowledged(name string, c content, position int64, sent time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.store(name)
	s.acks = append(s.acks, ack{c, position, sent})
	l.seen(name, s, position, c)
}

// Seen records that the content at a position was delivered to a client.
func (l *Ledger) Seen(name string, position int64, c content) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts[countDelivered]++
	l.seen(name, l.store(name), position, c)
}

func (l *Ledger) seen(name string, s *store, position int64, c content) {
	if before, ok := s.contents[position]; ok && before != c {
		l.breakLocked(PromiseOnce, "%s: position %d was %v, and is %v", name, position, before, c)
		return
	}
	s.contents[position] = c
}

func (l *Ledger) store(name string) *store {
	s := l.stores[name]
	if s == nil {
		s = &store{contents: make(map[int64]content)}
		l.stores[name] = s
	}
	return s
}

// The names of the metrics that are counted.
const (
	countDelivered   = "delivered"   // to a subscription or consumer
	countRedelivered = "redelivered" // although a consumer's acknowledgement was answered
	countTold        = "told"        // that history was lost
	countErrors      = "errors"      // answers, and connections that ended
	countUnfenced    = "unfenced"    // answers of a former primary
)

// Count adds 1 to a count.
func (l *Ledger) Count(what string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts[what]++
}

// counted returns a count.
func (l *Ledger) counted(what string) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return int64(l.counts[what])
}

// Promoted records when a standby was told to become the primary.
func (l *Ledger) Promoted(at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.promotions = append(l.promotions, promoted{asked: at})
}

// Returned records when the former primary came back as a second one after the last promotion.
func (l *Ledger) Returned(at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.promotions[len(l.promotions)-1].returned = at
}

// Compare compares the final contents of a store with the acknowledgements, and returns the
// acknowledged positions that are lost.
func (l *Ledger) Compare(name string, held map[int64]content, quorum bool) (lost []int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.store(name)
	for position, c := range held {
		l.seen(name, s, position, c)
	}
	for _, a := range s.acks {
		switch c, ok := held[a.position]; {
		case ok && c != a.content:
			l.breakLocked(PromiseOnce, "%s: position %d was answered to %v, and holds %v", name, a.position, a.content, c)
		case !ok:
			lost = append(lost, a.position)
			if quorum {
				l.breakLocked(PromiseKept, "%s: position %d, %v, sent %s", name, a.position, a.content, a.sent.Format(time.StampMilli))
			}
		}
	}
	slices.Sort(lost)
	return lost
}

// noticedWithin is how long after a former primary came back nodes may use it as the primary, if it was not silent for
// long enough to be noticed. Without a quorum, only the fencing of a cluster manager prevents that.
const noticedWithin = 1500 * time.Millisecond

// Fence checks that every acknowledged position of a store belongs to the history that was current when the request was
// sent. bases has the base of each history except the first, in order.
func (l *Ledger) Fence(name string, bases []int64, quorum bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range l.store(name).acks {
		l.fenced(name, a, bases, quorum)
	}
}

// fenced checks that a request sent after a promotion has a position in the history that began with this
// promotion.
func (l *Ledger) fenced(name string, a ack, bases []int64, quorum bool) {
	last := -1
	for last+1 < len(l.promotions) && l.promotions[last+1].asked.Before(a.sent) {
		last++
	}
	if last < 0 || last >= len(bases) || a.position > bases[last] {
		return
	}
	p := l.promotions[last]
	if !quorum && !p.returned.IsZero() && a.sent.Before(p.returned.Add(noticedWithin)) {
		l.counts[countUnfenced]++
		return
	}
	l.breakLocked(PromiseFenced, "%s: %v, sent %v after promotion %d, was answered with position %d of the history before",
		name, a.content, a.sent.Sub(p.asked), last+1, a.position)
}

// metrics adds what was counted.
func (l *Ledger) metrics(m map[string]float64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.stores {
		m["acknowledged"] += float64(len(s.acks))
	}
	for _, what := range []string{countDelivered, countRedelivered, countTold, countErrors, countUnfenced} {
		m[what] = float64(l.counts[what])
	}
}
