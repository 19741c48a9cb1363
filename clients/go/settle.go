package tidewire

import (
	"errors"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// verdictOf returns what the error of a handler says.
func verdictOf(err error) verdict {
	var v *verdict
	if errors.As(err, &v) {
		return verdict{reason: err.Error(), delay: v.delay, dead: v.dead}
	}
	return verdict{reason: err.Error()}
}

// reject gives a message back, or makes it a dead letter.
func (w *workerCore) reject(d *delivery, err error) {
	v := verdictOf(err)
	failed := w.settle(d.link, "nack", []*delivery{d}, func(out *writer) {
		out.text("reason", shortened(v.reason, 1024))
		switch {
		case v.dead:
			out.yes("dead")
		case v.delay > 0:
			out.number("delay_ms", max(1, v.delay.Milliseconds()))
		}
	}, true)
	w.mu.Lock()
	defer w.mu.Unlock()
	if failed[d.name] {
		w.outcome(d, Lost)
	} else {
		w.outcome(d, Nacked)
	}
	w.settling--
	w.rest()
}

// shortened returns the beginning of a text, in whole characters and without NUL.
func shortened(s string, most int) string {
	s = strings.ReplaceAll(s, "\x00", "")
	if len(s) <= most {
		return s
	}
	for most > 0 && !utf8.RuneStart(s[most]) {
		most--
	}
	return s[:most]
}

const (
	ackPause = 10 * time.Millisecond
	mostAcks = 1000
)

// acknowledge sends what waits: at once if no answer is due, or if no handler runs that could add something; else with the next answer, or
// 10 ms later. The caller holds the lock.
func (w *workerCore) acknowledge() {
	if w.flushing && (w.running > 1 || len(w.waiting) > 0) {
		return
	}
	w.flushing = true
	w.round++
	round := w.round
	w.flush(round)
	time.AfterFunc(ackPause, func() { w.nextAcks(round) })
}

// nextAcks sends what has come to wait since a round of acknowledgements.
func (w *workerCore) nextAcks(round int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.round != round || !w.flushing {
		return
	}
	w.flushing = false
	if len(w.acks) > 0 {
		w.acknowledge()
	}
}

// flush sends what waits to be acknowledged. The caller holds the lock.
func (w *workerCore) flush(round int) {
	for len(w.acks) > 0 {
		n := 1
		for n < len(w.acks) && n < mostAcks && w.acks[n].link == w.acks[0].link {
			n++
		}
		some := w.acks[:n:n]
		w.acks = w.acks[n:]
		w.settling += n
		go w.ack(some, round)
	}
	w.acks = nil
}

// ack acknowledges deliveries of one connection.
func (w *workerCore) ack(some []*delivery, round int) {
	lost := w.settle(some[0].link, "ack", some, nil, true)
	defer w.nextAcks(round)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, d := range some {
		if lost[d.name] {
			w.outcome(d, Lost)
		} else {
			w.outcome(d, Acked)
		}
	}
	w.settling -= len(some)
	w.rest()
}

// firstLease is how long the server lets a delivery last that was not extended yet.
const firstLease = 30 * time.Second

// beat is how long the worker waits before it extends leases again: half of the time that the newest delivery has.
func beat(lease time.Duration) time.Duration { return min(lease, firstLease) / 2 }

// extend extends the leases of all deliveries that are under way.
func (w *workerCore) extend() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended || len(w.active) == 0 {
		w.extender = nil
		return
	}
	w.extender = time.AfterFunc(beat(w.options.Lease), w.extend)
	some := make([]*delivery, 0, len(w.active))
	for _, d := range w.active {
		some = append(some, d)
	}
	ms := w.options.Lease.Milliseconds()
	for len(some) > 0 {
		n := min(len(some), mostAcks)
		go w.extendSome(some[:n:n], ms)
		some = some[n:]
	}
}

func (w *workerCore) extendSome(some []*delivery, ms int64) {
	lost := w.settle(some[0].link, "extend", some, func(out *writer) { out.number("lease_ms", ms) }, false)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, d := range some {
		if lost[d.name] {
			w.lose(d)
		}
	}
}

// settle sends an ack, a nack or an extend, and returns the deliveries that are lost. What failed for a moment it sends again, if
// insist, as long as the connection lasts.
func (w *workerCore) settle(l *link, kind string, some []*delivery, fields func(out *writer), insist bool) map[string]bool {
	lost := map[string]bool{}
	for n := 0; ; n++ {
		failure, err := w.settleOnce(l, kind, some, fields)
		if err == nil {
			return lost
		}
		if failure == nil || !failure.Retryable && failure.Code != "lease_lost" {
			for _, d := range some {
				lost[d.name] = true
			}
			return lost
		}
		for _, name := range failure.Lost {
			lost[name] = true
		}
		if !failure.Retryable {
			return lost
		}
		if len(failure.Failed) > 0 {
			some = slices.DeleteFunc(slices.Clone(some), func(d *delivery) bool { return !slices.Contains(failure.Failed, d.name) })
		}
		if !insist || len(some) == 0 {
			return lost
		}
		select {
		case <-time.After(max(pause(n), milliseconds(failure.RetryAfterMS))):
		case <-l.over:
		}
	}
}

// settleOnce sends one request. Its error is the server's, if that is not nil.
func (w *workerCore) settleOnce(l *link, kind string, some []*delivery, fields func(out *writer)) (*wireError, error) {
	names := make([]string, len(some))
	for i, d := range some {
		names[i] = d.name
	}
	r := &request{kind: kind, repeat: leased, check: counted, encode: func(out *writer, _ *request) {
		out.text("queue", w.queue)
		out.texts("deliveries", names)
		if fields != nil {
			fields(out)
		}
	}}
	c := w.c
	c.mu.Lock()
	if c.link != l {
		c.unlock()
		return nil, ErrLeaseLost
	}
	c.startOn(l, r)
	c.unlock()
	<-r.done
	return r.wire, r.err
}
