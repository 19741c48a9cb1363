package hostile

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/stream"
)

// citizen is a well-behaved client. make and take run until nothing more is started or expected; then check compares their ledgers with PostgreSQL.
type citizen interface {
	lines() int // how many connections it keeps
	make()
	take()
	check(ctx context.Context, pool *pgxpool.Pool) error
}

// publishers publish to a stream with sequences. Others subscribe and read by HTTP, and must see the same messages.
type publishers struct {
	w                *world
	stream           string
	shared, regular  bool // attackers may publish to the stream, too; see work
	publish, readers int  // how many

	mu     sync.Mutex
	stored map[string]int64 // positions, by payload
	last   int64            // the highest of them
	seen   []stored         // by the subscriber
	read   [][]stored       // by each reader
}

func (p *publishers) lines() int { return p.publish + 1 }

func (p *publishers) make() {
	p.stored = make(map[string]int64)
	side(p.publish, func(i int) {
		who := fmt.Sprintf("publisher %d of %s", i, p.stream)
		payload := func(n int) string { return fmt.Sprintf("%s by %d: %d", p.stream, i, n) }
		p.w.produce(work{who: who, path: "/ws", regular: p.regular,
			ask: func(l *line, n int) {
				l.ask(n, `{"type":"publish","stream":%q,"client":%q,"sequence":%d,"payload":%q,"id":%d}`, p.stream, who, n, payload(n), n)
			},
			done: func(n int, m message) {
				p.mu.Lock()
				defer p.mu.Unlock()
				p.stored[payload(n)] = m.Position
				p.last = max(p.last, m.Position)
			}})
	})
}

func (p *publishers) has(last int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return last >= p.last
}

// take subscribes, and resumes after the last position seen.
func (p *publishers) take() {
	p.read = make([][]stored, p.readers)
	var reading sync.WaitGroup
	defer reading.Wait()
	for i := range p.readers {
		reading.Go(func() { p.page(i) })
	}
	last, who := int64(0), "subscriber of "+p.stream
	p.w.consume(who, "/ws",
		func(l *line) {
			l.ask(joinID, `{"type":"subscribe","stream":%q,"after":%d,"id":%d}`, p.stream, last, joinID)
		},
		func(_ *line, m message) {
			if m.Type != "message" {
				return
			}
			if m.Position <= last {
				p.w.fault(who, "order", "position %d after %d", m.Position, last)
			}
			last = m.Position
			p.seen = append(p.seen, stored{m.Position, m.Payload})
		},
		func() bool { return p.has(last) })
}

// page reads the stream by HTTP until it has the last message.
func (p *publishers) page(reader int) {
	who, last := "HTTP-reader of "+p.stream, int64(0)
	for !p.w.over(func() bool { return p.has(last) }) && p.w.giveUp.Err() == nil {
		var page struct{ Messages []message }
		since := time.Now()
		if p.w.request(who, "GET", fmt.Sprintf("/v1/streams/%s/messages?after=%d&limit=50", p.stream, last), "", &page) && p.regular {
			p.w.times.note(time.Since(since))
		}
		for _, m := range page.Messages {
			if m.Position <= last {
				p.w.fault(who, "order", "position %d after %d", m.Position, last)
			}
			last = m.Position
			p.read[reader] = append(p.read[reader], stored{m.Position, m.Payload})
		}
		if len(page.Messages) < 50 {
			time.Sleep(regularPause) // pace: of a well-behaved reader
		}
	}
}

func (p *publishers) check(ctx context.Context, pool *pgxpool.Pool) error {
	log, err := stream.Lookup(ctx, pool, p.stream)
	if err != nil {
		return err
	}
	all, err := pages(func(after int64) ([]stream.Message, error) { return log.Read(ctx, after, 1000) })
	if err != nil {
		return err
	}
	for _, m := range all {
		if !p.shared && !strings.HasPrefix(m.payload, p.stream+" ") {
			p.w.fault("publishers of "+p.stream, "not their own", "%q is stored at %d", m.payload, m.position)
		}
	}
	if !p.shared && len(all) > len(p.stored) {
		p.w.fault("publishers of "+p.stream, "not their own", "%d messages are stored, and %d were answered", len(all), len(p.stored))
	}
	p.w.promised("publishers of "+p.stream, p.stored, all)
	for _, seen := range append(p.read, p.seen) {
		p.w.same("readers of "+p.stream, seen, all)
	}
	p.w.t.Logf("stream %s: %d published, %d seen", p.stream, len(p.stored), len(p.seen))
	return nil
}

// pages returns all messages that read returns page by page.
func pages(read func(after int64) ([]stream.Message, error)) (all []stored, err error) {
	for after := int64(0); ; {
		page, err := read(after)
		if err != nil || len(page) == 0 {
			return all, err
		}
		for _, m := range page {
			after = m.Position
			all = append(all, stored{m.Position, string(m.Payload)})
		}
	}
}
