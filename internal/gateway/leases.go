package gateway

import (
	"context"
	"crypto/rand"
	"errors"
	"math"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidewire/tidewire/internal/budget"
	"github.com/tidewire/tidewire/internal/engine"
)

// leases are the deliveries that a client has received and not settled, by
// token. They hold no payload, but the store does, for a further delivery.
type leases struct {
	memory  *budget.Holder // nil for those of HTTP: all bounds them
	all     *atomic.Int64  // bytes of the messages of several tables, or nil
	mu      sync.Mutex
	prefix  string // makes tokens unique across tables and processes
	last    uint64
	held    map[string]lease
	soonest time.Time // no lease expires before that
	bytes   int       // of all messages
}

type lease struct {
	token string
	own   engine.Lease
	until time.Time
	bytes int // of the message
}

// newLeases returns an empty table. Its tokens begin with the name of a node, if it has one.
func newLeases(node string, memory *budget.Holder) *leases {
	if node != "" {
		node += nodeSeparator
	}
	return &leases{memory: memory, prefix: node + rand.Text()[:12] + "-", held: make(map[string]lease)}
}

// put adds deliveries and returns their tokens.
func (l *leases) put(ds []engine.Delivery) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	tokens := make([]string, len(ds))
	var all strings.Builder // the tokens share its memory
	all.Grow(len(ds) * (len(l.prefix) + tokenDigits))
	for i, d := range ds {
		l.last++
		from := all.Len()
		all.WriteString(l.prefix)
		var digits [tokenDigits]byte
		all.Write(strconv.AppendUint(digits[:0], l.last, 36))
		tokens[i] = all.String()[from:]
		l.keep(lease{tokens[i], d.Lease, d.Until, messageBytes(&d.Message)})
	}
	return tokens
}

// tokenDigits is how many digits the number of a token may have.
const tokenDigits = 13

// keep adds one lease. l.mu is held.
func (l *leases) keep(h lease) {
	if _, is := l.held[h.token]; !is {
		l.weigh(h.bytes)
	}
	l.held[h.token] = h
	if l.soonest.IsZero() || h.until.Before(l.soonest) {
		l.soonest = h.until
	}
}

// weigh adds to the bytes of all messages. l.mu is held.
func (l *leases) weigh(bytes int) {
	l.bytes += bytes
	l.memory.Take(budget.Follow, int64(bytes)) // Take and Release ignore values below 1
	l.memory.Release(budget.Follow, -int64(bytes))
	if l.all != nil {
		l.all.Add(int64(bytes))
	}
}

// drop removes a lease that is held. l.mu is held.
func (l *leases) drop(h lease) {
	delete(l.held, h.token)
	l.weigh(-h.bytes)
}

// take removes and returns the leases of the tokens, and the tokens without a
// lease. Leases that the client keeps are not removed; of others a repeated token
// counts once.
func (l *leases) take(how settlement, tokens []string) (taken []lease, lost []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, token := range tokens {
		h, ok := l.held[token]
		switch {
		case !ok:
			lost = append(lost, token)
			continue
		case !how.keeps():
			l.drop(h)
		}
		taken = append(taken, h)
	}
	return taken, lost
}

// putBack adds a taken lease again.
func (l *leases) putBack(h lease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.keep(h)
}

// kept records the expiry of a lease that is still held, or removes it if it was
// lost.
func (l *leases) kept(h lease, until time.Time, lost bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.held[h.token]; !ok {
		return
	}
	if lost {
		l.drop(h)
		return
	}
	h.until = until
	l.keep(h)
}

// count returns the number of leases that have not expired, and when the next
// one expires. It removes expired ones: other consumers get these messages.
func (l *leases) count(now time.Time) (n int, next time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.held) > 0 && !now.Before(l.soonest) {
		l.soonest = time.Time{}
		for _, h := range l.held {
			if now.Before(h.until) {
				l.keep(h)
			} else {
				l.drop(h)
			}
		}
	}
	return len(l.held), l.soonest
}

// forget removes all leases.
func (l *leases) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, h := range l.held {
		l.drop(h)
	}
	l.soonest = time.Time{}
}

// settle settles deliveries that were taken, and returns the tokens of those
// whose lease was lost and of those that failed. Failed ones are put back.
func (l *leases) settle(ctx context.Context, store engine.Queues, how settlement, taken []lease) (lost, failed []string, err error) {
	if len(taken) == 0 {
		return nil, nil, nil
	}
	now := time.Now()
	for i, e := range how.call(ctx, store, owns(taken)) {
		gone, until := errors.Is(e, engine.ErrLeaseLost), taken[i].until
		if how.kind == "extend" {
			until = now.Add(how.lease)
		}
		switch {
		case gone:
			lost = append(lost, taken[i].token)
		case e != nil:
			failed, err = append(failed, taken[i].token), e
		}
		if how.keeps() && (e == nil || gone) {
			l.kept(taken[i], until, gone)
		} else if !how.keeps() && e != nil && !gone {
			l.putBack(taken[i])
		}
	}
	return lost, failed, err
}

// call returns an error or nil for each lease.
func (how settlement) call(ctx context.Context, store engine.Queues, own []engine.Lease) (errs []error) {
	switch how.kind {
	case "begin":
		errs = store.Begin(own)
	case "ack":
		errs = store.Ack(ctx, own)
	case "nack":
		errs = store.Nack(ctx, own, how.nack)
	default:
		errs = store.Extend(ctx, own, how.lease)
	}
	if errs == nil {
		errs = make([]error, len(own))
	}
	return errs
}

func owns(taken []lease) []engine.Lease {
	out := make([]engine.Lease, len(taken))
	for i, h := range taken {
		out[i] = h.own
	}
	return out
}

// settledReply is the answer to a settlement.
func settledReply(lost, failed []string, done int) reply {
	r := reply{Type: "ok"}
	switch {
	case len(failed) > 0:
		r = refusal(codeNotSettled)
	case len(lost) > 0:
		r = refusal(engine.CodeLeaseLost)
	}
	r.Count, r.Lost, r.Failed = done, lost, failed
	return r
}

// mostUnsettled is how many bytes of messages a client may have that it has not settled: the store keeps them for a further delivery.
func mostUnsettled(b *budget.Budget) int {
	return int(b.Limit() / unsettledShare)
}

// unsettledShare is the part of the memory for clients that the unsettled deliveries of one of them may have.
const unsettledShare = 8

// fits returns how many more messages the client may have within so many bytes, by the average of those that it has. If it has none, the store
// bounds the bytes of the next ones.
func (l *leases) fits(most int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	held := len(l.held)
	if held == 0 {
		return math.MaxInt
	}
	return max(0, most-l.bytes) / max(l.bytes/held, 1)
}
