package multinode

import (
	"fmt"
	"sync"
)

// The promises that a run checks.
const (
	PromiseRoomOnce  = "live room: no chat comes twice"
	PromiseRoomOrder = "live room: the chats of each sender come in order"
	PromiseRoomTold  = "live room: each chat is received or told as missing, and nothing else is told"
	PromiseRoomSoon  = "live room: chats that are missing are told in time after each repair"
	PromisePresence  = "presence is right in time after each repair"
	PromiseKept      = "stored room, stream, queue: what is acknowledged is stored once"
	PromiseComplete  = "stored room, stream: each reader gets everything once, in order"
	PromiseSettled   = "queue: each acknowledged message is settled"
	PromiseDone      = "queue: what is acknowledged by a consumer is not delivered again"
	PromiseAnswered  = "every request is answered"
	PromiseLease     = "queue: no two consumers hold one message"
)

var promises = []string{
	PromiseRoomOnce, PromiseRoomOrder, PromiseRoomTold, PromiseRoomSoon, PromisePresence,
	PromiseKept, PromiseComplete, PromiseSettled, PromiseDone, PromiseLease, PromiseAnswered,
}

// content identifies what was stored: the client's number in the upper half, the request's number in the lower.
type content int64

func contentOf(client, sequence int) content { return content(client)<<32 | content(sequence) }

func (c content) client() int { return int(c >> 32) }

func (c content) String() string { return fmt.Sprintf("%d %d", c>>32, c&(1<<32-1)) }

// parseContent is the inverse of String.
func parseContent(text string) (content, error) {
	var client, sequence int
	if _, err := fmt.Sscanf(text, "%d %d", &client, &sequence); err != nil {
		return 0, fmt.Errorf("%q is nobody's: %w", text[:min(len(text), 100)], err)
	}
	return contentOf(client, sequence), nil
}

// stored is a message and its position.
type stored struct {
	position int64
	content  content
}

// Ledger records broken promises, acknowledgements and counts. Safe for concurrent use.
type Ledger struct {
	mu     sync.Mutex // guards the fields below
	broken map[string]*breach
	acks   map[string][]stored // by the name of the stream, room or queue
	counts map[string]int
}

// breach counts how often a promise was broken, and keeps the first times.
type breach struct {
	count int
	first []string
}

// NewLedger returns an empty Ledger.
func NewLedger() *Ledger {
	return &Ledger{broken: make(map[string]*breach), acks: make(map[string][]stored), counts: make(map[string]int)}
}

// Break records that a promise was broken.
func (l *Ledger) Break(promise, format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
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

// The names of the metrics that are counted.
const (
	countSent         = "sent"         // requests that store or send a message, without repetitions
	countAcknowledged = "acknowledged" // of these
	countDelivered    = "delivered"    // messages, chats and deliveries that clients received
	countTold         = "told"         // chats that members were told to have missed
	countErrors       = "errors"       // error answers, and connections that ended
)

// Count adds to a count.
func (l *Ledger) Count(what string, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts[what] += n
}

func (l *Ledger) counted(what string) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return int64(l.counts[what])
}

// Acknowledged records that a stream, room or queue has answered a request with a position.
func (l *Ledger) Acknowledged(name string, c content, position int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts[countAcknowledged]++
	l.acks[name] = append(l.acks[name], stored{position, c})
}

// acknowledged returns what was acknowledged.
func (l *Ledger) acknowledged(name string) []stored {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]stored(nil), l.acks[name]...)
}

// compare checks that everything acknowledged is held at its position, and that nothing is held twice.
func (l *Ledger) compare(name string, held []stored) {
	at, of := make(map[int64]content), make(map[content]int64)
	for _, h := range held {
		if before, twice := of[h.content]; twice {
			l.Break(PromiseKept, "%s: %v is at positions %d and %d", name, h.content, before, h.position)
		}
		at[h.position], of[h.content] = h.content, h.position
	}
	for _, a := range l.acknowledged(name) {
		if c, ok := at[a.position]; !ok {
			l.Break(PromiseKept, "%s: %v was acknowledged at position %d, where nothing is", name, a.content, a.position)
		} else if c != a.content {
			l.Break(PromiseKept, "%s: %v was acknowledged at position %d, where %v is", name, a.content, a.position, c)
		}
	}
}

// metrics adds what was counted.
func (l *Ledger) metrics(m map[string]float64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, what := range []string{countSent, countAcknowledged, countDelivered, countTold, countErrors} {
		m[what] = float64(l.counts[what])
	}
}
