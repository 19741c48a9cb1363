package gateway

import (
	"context"
	"encoding/json"

	"github.com/tidewire/tidewire/internal/budget"
	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/wire"
	"github.com/tidewire/tidewire/websocket"
)

// eventsServed reports whether a request for events can be served; if not, it
// refuses it.
func (s *session) eventsServed(r *request) bool {
	switch {
	case s.server.events == nil:
		s.refuse(r.asked(), codeNotServed)
	case r.Store != "" && !usable(r.Store):
		s.refuseFor(r.asked(), unusable("store", r.Store))
	default:
		return true
	}
	return false
}

// appendEvents stores events, if their condition holds. Answers are sent after
// the commit, in any order.
func (s *session) appendEvents(r *request) {
	if !s.eventsServed(r) {
		return
	}
	events, condition, err := r.events()
	if err != nil {
		s.fail(r.asked(), err, engine.CodeInvalid)
		return
	}
	as, why := r.requestID(s.conn.identity.caller.Load())
	if why != nil {
		s.refuseFor(r.asked(), why)
		return
	}
	s.inBackground(func(ctx context.Context) {
		at, err := appendInTurn(ctx, sessionQuery{s, r}, s.server.events, r.Store, as, events, condition)
		if err != nil {
			s.fail(r.asked(), err, codeNotStored)
			return
		}
		s.ok(r.asked(), s.server.appended(at))
	})
}

// appended counts appended events, and is the answer to their append.
func (s *sessions) appended(at engine.AppendedEvents) reply {
	if !at.Duplicate {
		s.stored.Add(uint64(len(at.Positions)))
	}
	return reply{Positions: at.Positions, Duplicate: at.Duplicate}
}

// queryEvents answers on the bulk lane, because the answer may be large.
func (s *session) queryEvents(r *request) {
	if !s.eventsServed(r) || r.ID == nil {
		return
	}
	span, err := r.eventRange()
	if err != nil {
		s.fail(r.asked(), err, engine.CodeInvalid)
		return
	}
	s.inBackground(func(context.Context) {
		ctx := s.reads
		select {
		case s.querying <- struct{}{}:
			defer func() { <-s.querying }()
		case <-ctx.Done():
		}
		if s.gone.Load() {
			return
		}
		frame, held, err := s.answerQuery(ctx, r, span)
		defer func() { s.conn.memory.Release(budget.Page, held) }()
		if err != nil {
			s.fail(r.asked(), err, codeUnavailable)
			return
		}
		s.push(ctx, frame)
	})
}

// queriesAtOnce is how many queries are read and encoded at a time in the whole server, of one user at most half of them. The events of each, up to 1 MiB, are
// counted in the memory budget only afterwards.
const queriesAtOnce = 16

// answerQuery reads the events of a query and encodes them, and returns the bytes
// held of the memory budget. Only queriesAtOnce run at a time in the whole server,
// because the events are counted only after they are read.
func (s *session) answerQuery(ctx context.Context, r *request, span engine.EventRange) (frame []byte, held int64, err error) {
	if err := s.conn.memory.Reserve(ctx, budget.Page, pageReserve); err != nil {
		return nil, 0, err
	}
	held = pageReserve
	end, err := shared{sessionQuery{s, r}, userOrAddress(s.conn.address, s.conn.identity.caller.Load()), s.server.querying}.Query(ctx)
	if err != nil {
		return nil, held, err
	}
	defer end()
	events, err := s.server.events.Query(ctx, r.Store, r.Query, span)
	if err != nil {
		return nil, held, err
	}
	w := wire.Writer{Encoding: r.Encoding}
	w.Open()
	w.Name("type")
	w.Text("ok")
	w.Name("id")
	w.Encoded(r.ID)
	writeEvents(&w, events, span)
	w.Close()
	frame = websocket.AppendFrame(nil, opcode(r.Encoding), w.Buf)
	s.conn.memory.Take(budget.Page, int64(cap(frame))-held)
	return frame, max(held, int64(cap(frame))), nil
}

// projection is the answer to project.
type projection struct {
	Counts []int64               `json:"counts"`
	Guard  engine.EventCondition `json:"condition"`
}

// projectionOf counts the events of queries. Its JSON has an empty array in place of null.
func projectionOf(ctx context.Context, by asking, store engine.Events, name string, queries []engine.EventQuery) (p projection, err error) {
	return query(ctx, by, func() (projection, error) {
		p.Counts, p.Guard, err = store.Count(ctx, name, queries)
		if p.Guard.Query.Items == nil {
			p.Guard.Query.Items = []engine.EventItem{}
		}
		return p, err
	})
}

// write writes the answer to a request on /ws.
func (p *projection) write(w *wire.Writer, id []byte) {
	w.Open()
	w.Name("type")
	w.Text("ok")
	w.Name("id")
	w.Encoded(id)
	w.Name("counts")
	w.OpenList()
	for _, n := range p.Counts {
		w.Next()
		w.Int(n)
	}
	w.CloseList()
	guard, _ := json.Marshal(p.Guard) // no value of ours fails
	w.Name("condition")
	w.JSON(guard)
	w.Close()
}

// project counts events.
func (s *session) project(r *request) {
	if !s.eventsServed(r) || r.ID == nil {
		return
	}
	queries, err := r.queries()
	if err != nil {
		s.fail(r.asked(), err, engine.CodeInvalid)
		return
	}
	s.inBackground(func(context.Context) {
		ctx := s.reads
		select {
		case s.projecting <- struct{}{}: // one connection must not use the whole capacity of the store
			defer func() { <-s.projecting }()
		case <-ctx.Done():
		}
		if s.gone.Load() {
			return
		}
		answer, err := projectionOf(ctx, sessionQuery{s, r}, s.server.events, r.Store, queries)
		if err != nil {
			s.fail(r.asked(), err, codeUnavailable)
			return
		}
		w := wire.Writer{Encoding: r.Encoding}
		answer.write(&w, r.ID)
		s.push(ctx, websocket.AppendFrame(nil, opcode(r.Encoding), w.Buf))
	})
}

// eventFeed is the feed of a subscription of events.
type eventFeed struct {
	engine.EventSubscription
	name string
}

func (f eventFeed) next(ctx context.Context, most int) (page, error) {
	events, err := f.Next(ctx, most)
	p := page{size: len(events), write: func(w *wire.Writer, n int) {
		w.Open()
		w.Name("type")
		w.Text("event")
		w.Name("subscription")
		w.Text(f.name)
		w.Name("event")
		writeEvent(w, &events[n])
		w.Close()
	}}
	for i := range events {
		p.bytes += eventBytes(&events[i])
	}
	return p, err
}

// subscribeEvents starts a subscription of events, which needs a name.
func (s *session) subscribeEvents(r *request) {
	if !s.eventsServed(r) {
		return
	}
	why := r.creditsWithin(maxCredits)
	switch {
	case r.Given&wire.Of(wire.FieldShare, wire.FieldKeys, wire.FieldHeaders) != 0:
		why = malformed("query", "no share, keys or headers beside it: these are for a stream")
	case !validName(r.Subscription):
		why = wrong(codeName, "subscription", "a name of 1 to 128 bytes")
	case r.After < 0, r.Has(wire.FieldAt), r.From != "" && (r.Has(wire.FieldAfter) || r.From != "start" && r.From != "end"), r.Group != "":
		why = wrong(codeStart, "after", "a position, 0 or more; or from: start or end")
	}
	if why != nil {
		s.refuseFor(r.asked(), why)
		return
	}
	held, ok := s.reserve() // for the query, until the subscription ends
	if !ok {
		return
	}
	sub := newSubscriber(s, r.Subscription, r)
	if why := s.enterSubscriber(sub); why != "" {
		s.conn.memory.Release(budget.Ingest, held)
		s.refuse(r.asked(), why)
		return
	}
	after := r.After
	if r.From == "end" {
		after = -1
	}
	s.feed(func() {
		defer s.conn.memory.Release(budget.Ingest, held)
		sub.run(r.asked(), func(ctx context.Context) (source, error) {
			opened, err := s.server.events.SubscribeEvents(ctx, r.Store, r.Query, after)
			return paged{eventFeed{opened, r.Subscription}, sub}, err
		})
	})
}
