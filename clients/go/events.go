package tidewire

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"time"
)

// Event is a fact that has happened.
type Event struct {
	Position int64     // where it is stored; an append ignores it
	Time     time.Time // when it was stored; an append ignores it
	Type     string
	Tags     []string
	ID       string          // an event with the same id is stored once
	Data     json.RawMessage // any JSON, or nil
	Bytes    []byte          // in place of Data: any bytes
}

// Query says which events. Without items every event matches.
type Query struct {
	Items []Item `json:"items,omitempty"`
}

// Item matches an event that has one of the types, and all of the tags.
type Item struct {
	Types []string `json:"types,omitempty"`
	Tags  []string `json:"tags,omitempty"`
}

// Tagged matches events that have all of these tags.
func Tagged(tags ...string) Query { return Query{[]Item{{Tags: tags}}} }

// Typed matches events that have one of these types.
func Typed(types ...string) Query { return Query{[]Item{{Types: types}}} }

// OfType returns q for events that have one of these types, too.
func (q Query) OfType(types ...string) Query {
	items := make([]Item, 0, max(1, len(q.Items)))
	for _, i := range q.Items {
		items = append(items, Item{Types: types, Tags: i.Tags})
	}
	if len(items) == 0 {
		items = append(items, Item{Types: types})
	}
	return Query{items}
}

// AnyOf matches events that one of the queries matches.
func AnyOf(queries ...Query) Query {
	var all Query
	for _, q := range queries {
		if len(q.Items) == 0 {
			return Query{}
		}
		all.Items = append(all.Items, q.Items...)
	}
	return all
}

// Condition fails an append if an event after the position matches the query.
type Condition struct {
	Query Query `json:"query"`
	After int64 `json:"after,omitempty"`
}

// Appended says where events are stored.
type Appended struct {
	Positions []int64
	Duplicate bool // it was stored before, and this is the answer of then: also if the library itself has sent it again after a lost connection
}

// An AppendOption is an option of Append.
type AppendOption interface{ append(*AppendOptions) }

// AppendOptions are what AppendOptions set, for other implementations of EventStore.
type AppendOptions struct {
	Condition *Condition
	Timeout   time.Duration
}

// NewAppendOptions applies options.
func NewAppendOptions(options ...AppendOption) (o AppendOptions) {
	for _, option := range options {
		option.append(&o)
	}
	return o
}

func (c Condition) append(o *AppendOptions) { o.Condition = &c }

func (o MessageOption) append(a *AppendOptions) {
	var p PublishOptions
	o(&p)
	a.Timeout = p.Timeout
}

// If appends only if no event after this position matches the query.
func If(query Query, after int64) AppendOption { return Condition{query, after} }

// ReadOption is an option of Query and of Subscribe: After.
type ReadOption interface{ read(*ReadOptions) }

// ReadOptions are what ReadOptions set, for other implementations of EventStore.
type ReadOptions struct{ After int64 }

// NewReadOptions applies options.
func NewReadOptions(options ...ReadOption) (o ReadOptions) {
	for _, option := range options {
		option.read(&o)
	}
	return o
}

// Events is an event store of the server.
type Events struct {
	c     *Client
	store string
}

// Events returns the event store of that name; the default one if it is empty. It asks the server nothing.
func (c *Client) Events(store string) *Events { return &Events{c, store} }

// wireEvent is an event on the wire.
type wireEvent struct {
	Position int64           `json:"position,omitempty"`
	Time     *time.Time      `json:"time,omitempty"`
	Type     string          `json:"type"`
	Tags     []string        `json:"tags,omitempty"`
	ID       string          `json:"id,omitempty"`
	Data     json.RawMessage `json:"data,omitempty"`
	Bytes    *string         `json:"data_base64,omitempty"`
}

func (w *wireEvent) event() Event {
	e := Event{Position: w.Position, Type: w.Type, Tags: w.Tags, ID: w.ID, Data: w.Data}
	if w.Time != nil {
		e.Time = *w.Time
	}
	if w.Bytes != nil {
		e.Bytes, _ = base64.StdEncoding.DecodeString(*w.Bytes)
	}
	return e
}

func wireEvents(events []Event) []wireEvent {
	all := make([]wireEvent, len(events))
	for i, e := range events {
		all[i] = wireEvent{Type: e.Type, Tags: e.Tags, ID: e.ID, Data: e.Data}
		if e.Bytes != nil {
			text := base64.StdEncoding.EncodeToString(e.Bytes)
			all[i].Bytes = &text
		}
	}
	return all
}

// writeStore writes the name of the store.
func (e *Events) writeStore(w *writer) {
	if e.store != "" {
		w.text("store", e.store)
	}
}

// ask sends a request with fields that are encoded once, and returns its answer, which complete looks at.
func ask[T any](ctx context.Context, e *Events, r *request, fields any, timeout time.Duration, complete func(*T) error) (answer T, err error) {
	text, err := json.Marshal(fields)
	if err != nil {
		return answer, &Error{Code: "invalid", Message: "the events cannot be encoded: " + err.Error(), cause: err}
	}
	r.asText, r.size = true, len(text)
	r.encode = func(w *writer, r *request) {
		e.writeStore(w)
		e.c.writeSequence(w, r)
		if r.asked > 0 {
			w.number("limit", int64(r.asked))
		}
		w.fields(text)
	}
	r.decode = func(text []byte) (any, error) {
		var answer T
		if err := json.Unmarshal(text, &answer); err != nil {
			return nil, err
		}
		return answer, complete(&answer)
	}
	if err := e.c.do(ctx, r, timeout); err != nil {
		return answer, err
	}
	return r.answer.value.(T), nil
}

// appendAnswer is the answer to append.
type appendAnswer struct {
	Positions []int64 `json:"positions"`
	Duplicate bool    `json:"duplicate"`
}

// Append stores events, all or none. With If it fails with a ConflictError if an event matches by then. It is sent again after a
// reconnect, and stored once.
func (e *Events) Append(ctx context.Context, events []Event, options ...AppendOption) (Appended, error) {
	o := NewAppendOptions(options...)
	if err := o.Check(); err != nil {
		return Appended{}, err
	}
	fields := struct {
		Events    []wireEvent `json:"events"`
		Condition *Condition  `json:"condition,omitempty"`
	}{wireEvents(events), o.Condition}
	answer, err := ask(ctx, e, &request{kind: "append", numbered: true}, fields, o.Timeout, func(a *appendAnswer) error {
		if len(a.Positions) != len(events) {
			return fmt.Errorf("there are %d positions, of %d events", len(a.Positions), len(events))
		}
		return nil
	})
	return Appended(answer), err
}

// queryPage is how many events one request reads.
const queryPage = 1000

// Query iterates over the stored events that the query matches, and asks for one page after the other. The last pair has the error, if there is one.
func (e *Events) Query(ctx context.Context, query Query, options ...ReadOption) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		o := NewReadOptions(options...)
		if err := o.Check(); err != nil {
			yield(Event{}, err)
			return
		}
		after, limit := o.After, queryPage
		for {
			page, err := e.page(ctx, query, after, &limit)
			if err != nil {
				yield(Event{}, err)
				return
			}
			for i := range page.Events {
				if !yield(page.Events[i].event(), nil) {
					return
				}
			}
			if len(page.Events) == 0 {
				return
			}
			after = *page.Next
		}
	}
}

// eventPage is the answer to query.
type eventPage struct {
	Events []wireEvent `json:"events"`
	Next   *int64      `json:"next"`
}

// page reads the events after a position. It changes the limit to the one with which that was possible.
func (e *Events) page(ctx context.Context, query Query, after int64, limit *int) (eventPage, error) {
	r := &request{kind: "query", reads: true, limit: *limit}
	defer func() { *limit = r.asked }()
	fields := struct {
		Query Query `json:"query"`
		After int64 `json:"after"`
	}{query, after}
	return ask(ctx, e, r, fields, 0, func(p *eventPage) error {
		switch {
		case p.Events == nil || p.Next == nil:
			return errors.New("there are no events, or there is no position of the next page")
		case len(p.Events) > 0 && *p.Next <= after:
			return fmt.Errorf("the next page begins after %d, as this one, which began after %d", *p.Next, after)
		}
		return nil
	})
}

// halvePages has queries ask for smaller pages, because a page was larger than the client takes. The server bounds the data of a page, and
// the number of its events, but not their tags.
func (c *Client) halvePages(l *link) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.link != l {
		return
	}
	for _, r := range c.sent {
		r.limit = (r.limit + 1) / 2
	}
}

// Counts are how many events match each query.
type Counts struct {
	Counts    []int64   `json:"counts"`
	Condition Condition `json:"condition"` // as long as it holds, the counts do
}

// Project counts the events that match each query.
func (e *Events) Project(ctx context.Context, queries ...Query) (Counts, error) {
	return ask(ctx, e, &request{kind: "project", reads: true}, map[string][]Query{"queries": queries}, 0, func(c *Counts) error {
		if len(c.Counts) != len(queries) {
			return fmt.Errorf("there are %d counts, of %d queries", len(c.Counts), len(queries))
		}
		return nil
	})
}
