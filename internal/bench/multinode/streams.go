package multinode

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/tidewire/tidewire/internal/bench"
)

// stream is the name of the stream.
const stream = "prices"

// position is the position of a reader, for other goroutines too.
type position struct{ at atomic.Int64 }

func (p *position) last() int64    { return p.at.Load() }
func (p *position) set(last int64) { p.at.Store(last) }

// publisher appends to the stream, one message after the other. It repeats a request until that is acknowledged.
type publisher struct{ client }

func (p *publisher) run(ctx context.Context) {
	defer p.close()
	for sequence := 0; p.rest(ctx, 1); sequence++ {
		p.ledger.Count(countSent, 1)
		for !p.publish(ctx, sequence) && sleep(ctx, again) == nil {
		}
	}
}

func (p *publisher) publish(ctx context.Context, sequence int) (acknowledged bool) {
	c := contentOf(p.number, sequence)
	m, err := p.ask(ctx, `"type":"publish","stream":%q,"payload":%q,"client":"p%d","sequence":%d`, stream, c, p.number, sequence)
	if err == nil {
		p.ledger.Acknowledged(stream, c, m.Position)
	}
	return err == nil
}

// subscriber reads the stream from its beginning.
type subscriber struct {
	client
	got []stored
	at  position
}

func (s *subscriber) run(ctx context.Context) {
	defer s.close()
	for ctx.Err() == nil {
		s.follow(ctx)
	}
}

// follow subscribes after the last message, and receives messages until the subscription ends.
func (s *subscriber) follow(ctx context.Context) {
	wire, err := s.dial(ctx)
	if err != nil {
		return
	}
	inbox := wire.Inbox(stream)
	if m, err := s.ask(ctx, `"type":"subscribe","stream":%q,"after":%d`, stream, s.at.last()); err != nil {
		if m.Code == "history_lost" {
			s.ledger.Break(PromiseComplete, "%s: client %d, which has %d, was told that what follows %d is lost", stream, s.number, s.at.last(), m.Last)
		}
		sleep(ctx, again)
		return
	}
	var memory []bench.WireMessage
	for {
		page, err := inbox.Next(ctx, memory)
		if err != nil {
			s.close()
			return
		}
		for _, m := range page {
			if m.Type == "error" {
				s.ledger.Count(countErrors, 1)
				s.close()
				return
			}
			s.receive(m)
		}
		s.delivered(len(page))
		memory = page
	}
}

func (s *subscriber) receive(m bench.WireMessage) {
	c, err := parseContent(string(m.Payload))
	if err != nil {
		s.ledger.Break(PromiseComplete, "%s: position %d: %v", stream, m.Position, err)
	}
	if m.Position <= s.at.last() {
		s.ledger.Break(PromiseComplete, "%s: client %d got position %d after %d", stream, s.number, m.Position, s.at.last())
	}
	s.got = append(s.got, stored{m.Position, c})
	s.at.set(m.Position)
}

// compare checks that the subscriber has received what is stored.
func (s *subscriber) compare(held []stored) {
	complete(s.ledger, fmt.Sprintf("%s: client %d", stream, s.number), s.got, held, nil)
}
