package failover

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/tidewire/tidewire/internal/bench"
)

// publisher appends to a stream, one message after the other. A publisher with a producer id repeats a request
// until it is answered.
type publisher struct {
	client
	stream   string
	producer bool
}

func (p *publisher) run(ctx context.Context) {
	defer p.close()
	for sequence := 0; p.rest(ctx, 1); sequence++ {
		for again := true; again && ctx.Err() == nil; {
			again = p.publish(ctx, sequence) && p.producer
		}
	}
}

// publish publishes a message, and reports whether its outcome is unknown.
func (p *publisher) publish(ctx context.Context, sequence int) (unknown bool) {
	c, sent := contentOf(p.number, sequence), time.Now()
	m, err := bench.WireMessage{}, error(nil)
	if p.producer {
		m, err = p.ask(ctx, `"type":"publish","stream":%q,"payload":%q,"client":"p%d","sequence":%d`, p.stream, c, p.number, sequence)
	} else {
		m, err = p.ask(ctx, `"type":"publish","stream":%q,"payload":%q`, p.stream, c)
	}
	if err != nil {
		return true
	}
	p.ledger.Acknowledged(p.stream, c, m.Position, sent)
	p.answerTimes.answered(kindPublish)
	return false
}

// subscriber reads a stream from its beginning.
type subscriber struct {
	client
	stream string
	seen   []seen       // received, and not reported as lost
	at     atomic.Int64 // position of the last message, for other goroutines
}

type seen struct {
	position int64
	content  content
}

func (s *subscriber) last() int64 {
	if len(s.seen) == 0 {
		return 0
	}
	return s.seen[len(s.seen)-1].position
}

func (s *subscriber) run(ctx context.Context) {
	defer s.close()
	for ctx.Err() == nil {
		s.follow(ctx)
	}
}

// follow subscribes, and receives messages until the subscription ends.
func (s *subscriber) follow(ctx context.Context) {
	wire, err := s.dial(ctx)
	if err != nil {
		return
	}
	inbox := wire.Inbox(s.stream)
	m, err := s.ask(ctx, `"type":"subscribe","stream":%q,"after":%d`, s.stream, s.last())
	if err != nil {
		s.ended(m)
		return
	}
	s.take(ctx, inbox, func() {})
}

// take receives messages until the subscription ends. It calls had after some of them.
func (s *subscriber) take(ctx context.Context, inbox *bench.Inbox, had func()) {
	var memory []bench.WireMessage
	for {
		page, err := inbox.Next(ctx, memory)
		if err != nil {
			s.close()
			return
		}
		for _, m := range page {
			if m.Type == "error" {
				s.ledger.Count(countErrors)
				s.ended(m)
				return
			}
			s.receive(m)
		}
		s.answerTimes.answered(kindDeliver)
		had()
		memory = page
	}
}

func (s *subscriber) receive(m bench.WireMessage) {
	c, err := parseContent(m.Payload)
	switch {
	case err != nil:
		s.ledger.Break(PromiseComplete, "%s: position %d: %v", s.stream, m.Position, err)
	case m.Position <= s.last():
		s.ledger.Break(PromiseComplete, "%s: client %d got position %d after %d", s.stream, s.number, m.Position, s.last())
	}
	s.ledger.Seen(s.stream, m.Position, c)
	s.seen = append(s.seen, seen{m.Position, c})
	s.at.Store(m.Position)
}

// ended handles the error that ended or rejected the subscription.
func (s *subscriber) ended(m bench.WireMessage) {
	switch m.Code {
	case "history_lost":
		s.ledger.Count(countTold)
		if m.Last >= s.last() {
			s.ledger.Break(PromiseComplete, "%s: client %d, which had %d, was told that what comes after %d is lost", s.stream, s.number, s.last(), m.Last)
		}
		s.forget(m.Last)
	case "":
	default:
		s.close()
	}
}

// forget drops the messages after a position.
func (s *subscriber) forget(last int64) {
	for len(s.seen) > 0 && s.last() > last {
		s.seen = s.seen[:len(s.seen)-1]
	}
	s.at.Store(s.last())
}

// compare checks that the subscriber received everything that the stream holds after its first
// message.
func (s *subscriber) compare(held []seen) {
	if missing := len(held) - len(s.seen); missing != 0 {
		s.ledger.Break(PromiseComplete, "%s: client %d had %d messages, and %d are there", s.stream, s.number, len(s.seen), len(held))
		return
	}
	for i, h := range held {
		if s.seen[i] != h {
			s.ledger.Break(PromiseComplete, "%s: client %d had %v at %d, where %v at %d is", s.stream, s.number, s.seen[i].content, s.seen[i].position, h.content, h.position)
			return
		}
	}
}

// reader is the only member of a group: it commits the offset of what it has read, and continues
// from there.
type reader struct {
	subscriber
	group     string
	committed int64 // the last acknowledged offset
	quorum    bool
}

func (r *reader) run(ctx context.Context) {
	defer r.close()
	for ctx.Err() == nil {
		r.follow(ctx)
	}
}

func (r *reader) follow(ctx context.Context) {
	wire, err := r.dial(ctx)
	if err != nil {
		return
	}
	inbox := wire.Inbox(r.stream)
	m, err := r.ask(ctx, `"type":"subscribe","stream":%q,"group":%q`, r.stream, r.group)
	if err != nil {
		r.ended(m)
		return
	}
	r.starts(m.Position)
	r.take(ctx, inbox, func() {
		if !r.rest(ctx, 1) {
			return
		}
		// The connection may end meanwhile. Then take returns.
		if m, err := r.ask(ctx, `"type":"commit","stream":%q,"group":%q,"position":%d`, r.stream, r.group, r.last()); err == nil {
			r.committed = max(r.committed, m.Position)
			r.answerTimes.answered(kindCommit)
		} else if m.Code == "position_ahead" {
			r.ledger.Count(countTold)
		}
	})
}

// starts checks the position at which the group continues, and forgets the messages that it will
// receive again.
func (r *reader) starts(position int64) {
	if r.quorum && position < r.committed {
		r.ledger.Break(PromiseOffsets, "%s: group %s committed %d, and goes on after %d", r.stream, r.group, r.committed, position)
	}
	r.committed = position
	if position > r.last() {
		r.ledger.Break(PromiseComplete, "%s: group %s had %d, and goes on after %d", r.stream, r.group, r.last(), position)
	}
	r.forget(position)
}
