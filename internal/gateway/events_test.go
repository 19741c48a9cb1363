package gateway_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/engine"
)

// fakeEvents is an event store in memory.
type fakeEvents struct {
	engine.Events // of what no test needs

	mu      sync.Mutex
	events  []engine.Event
	changed chan struct{}
	hidden  atomic.Bool // the store of that name was asked
}

func newFakeEvents() *fakeEvents { return &fakeEvents{changed: make(chan struct{})} }

func matches(q engine.EventQuery, e engine.Event) bool {
	return len(q.Items) == 0 || slices.ContainsFunc(q.Items, func(item engine.EventItem) bool {
		return (len(item.Types) == 0 || slices.Contains(item.Types, e.Type)) &&
			!slices.ContainsFunc(item.Tags, func(tag string) bool { return !slices.Contains(e.Tags, tag) })
	})
}

func (f *fakeEvents) Append(_ context.Context, store string, _ *engine.RequestID, events []engine.Event, c *engine.EventCondition) (at engine.AppendedEvents, err error) {
	f.hidden.CompareAndSwap(false, store == "hidden")
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case store == "none":
		return at, engine.ErrNotFound
	case len(events) == 0:
		return at, &engine.FieldError{Field: "events", Problem: "none, want at least 1"}
	}
	for _, e := range f.events {
		if c != nil && e.Position > c.After && matches(c.Query, e) {
			return at, &engine.ConflictError{Position: e.Position, Type: e.Type}
		}
	}
	for _, e := range events {
		e.Position, e.Time = int64(len(f.events)+1), time.Unix(1000, 0)
		f.events = append(f.events, e)
		at.Positions = append(at.Positions, e.Position)
	}
	close(f.changed)
	f.changed = make(chan struct{})
	return at, nil
}

func (f *fakeEvents) Query(_ context.Context, store string, q engine.EventQuery, r engine.EventRange) (found []engine.Event, err error) {
	f.hidden.CompareAndSwap(false, store == "hidden")
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range f.events {
		if e.Position > r.After && (r.Before == 0 || e.Position < r.Before) && matches(q, e) {
			found = append(found, e)
		}
	}
	if r.Backwards {
		slices.Reverse(found)
	}
	return found[:min(len(found), r.Limit)], nil
}

func (f *fakeEvents) Count(ctx context.Context, store string, queries []engine.EventQuery) (counts []int64, guard engine.EventCondition, err error) {
	for _, q := range queries {
		found, _ := f.Query(ctx, store, q, engine.EventRange{Limit: 1000})
		counts = append(counts, int64(len(found)))
		guard.Query.Items = append(guard.Query.Items, q.Items...)
		guard.After = 99
	}
	return counts, guard, nil
}

func (f *fakeEvents) Types(context.Context, string, string, string, int) ([]string, error) {
	return nil, nil
}

func (f *fakeEvents) SubscribeEvents(_ context.Context, _ string, q engine.EventQuery, after int64) (engine.EventSubscription, error) {
	return &fakeEventSubscription{f, q, after}, nil
}

type fakeEventSubscription struct {
	*fakeEvents
	query engine.EventQuery
	after int64
}

func (s *fakeEventSubscription) Position() int64 { return s.after }
func (s *fakeEventSubscription) Close()          {}
func (s *fakeEventSubscription) Next(ctx context.Context, most int) ([]engine.Event, error) {
	for {
		s.mu.Lock()
		changed := s.changed
		s.mu.Unlock()
		if found, _ := s.Query(ctx, "", s.query, engine.EventRange{After: s.after, Limit: min(most, 10)}); len(found) > 0 {
			s.after = found[len(found)-1].Position
			return found, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func TestEvents_OnTheWire(t *testing.T) {
	t.Parallel()
	_, _, _, addr := serveAll(t)
	offered := `"position":1,"time":"1970-01-01T00:16:40Z","type":"Offered","tags":["c:1"],"id":"e","data":{"n": 1}`
	enrolled := `"position":2,"time":"1970-01-01T00:16:40Z","type":"Enrolled","tags":["c:1","s:\"2\""],"data_base64":"AAE="`
	sub := connect(t, addr)
	sub.ask(`{"type":"subscribe","id":1,"query":{"items":[{"tags":["c:1"]}]},"subscription":"mine","credits":1}`, `{"type":"ok","id":1,"position":0}`)
	connect(t, addr).ask(`{"type":"append","id":2,"events":[{"type":"Offered","tags":["c:1"],"data":{"n": 1},"id":"e"},{"type":"Enrolled","tags":["c:1","s:\"2\""],"data_base64":"AAE="}]}`,
		`{"type":"ok","id":2,"positions":[1,2]}`)
	sub.want(`{"type":"event","subscription":"mine","event":{` + offered + `}}`)
	sub.silent(50 * time.Millisecond)
	sub.ask(`{"type":"credit","subscription":"mine","n":5}`, `{"type":"event","subscription":"mine","event":{`+enrolled+`}}`)
	sub.ask(`{"type":"unsubscribe","id":3,"subscription":"mine"}`, `{"type":"ok","id":3}`)
	sub.ask(`{"type":"append","id":4,"events":[{"type":"X"}],"condition":{"query":{}}}`,
		`{"type":"error","id":4,"code":"conflict","message":"the condition does not hold: an event matches it, see position and event_type","retryable":false,"position":1,"event_type":"Offered"}`)
	sub.ask(`{"type":"query","id":5,"backwards":true,"before":3,"limit":1}`, `{"type":"ok","id":5,"events":[{`+enrolled+`}],"next":2}`)
	sub.ask(`{"type":"project","id":6,"queries":[{"items":[{"types":["Enrolled"]}]},{"items":[{"tags":["c:1"]}]}]}`,
		`{"type":"ok","id":6,"counts":[1,2],"condition":{"query":{"items":[{"types":["Enrolled"]},{"tags":["c:1"]}]},"after":99}}`)
}

func TestEvents_OverHTTP(t *testing.T) {
	t.Parallel()
	_, _, _, addr := serveAll(t)
	api := client{t, addr}
	for _, c := range []struct {
		method, path, body string
		status             int
		answer             string
	}{
		{"POST", "/v1/events", `{"events":[{"type":"Offered","tags":["c:1"],"data":[1]}]}`, 200, `{"positions":[1]}`},
		{"POST", "/v1/events", `{"events":[{"type":"X"}],"condition":{"query":{}}}`, 409, `{"error":{"code":"conflict","message":"the condition does not hold: an event matches it, see position and event_type","retryable":false,"position":1,"event_type":"Offered"}}`},
		{"POST", "/v1/events", `{}`, 400, `{"error":{"code":"invalid","message":"events: none, want at least 1","retryable":false,"field":"events"}}`},
		{"GET", "/v1/events?type=Offered&tag=c:1", "", 200, `{"events":[{"position":1,"time":"1970-01-01T00:16:40Z","type":"Offered","tags":["c:1"],"data":[1]}],"next":1}`},
		{"GET", "/v1/events?tag=c:2&after=7", "", 200, `{"events":[],"next":7}`},
		{"GET", "/v1/events?backwards=yes", "", 400, `{"error":{"code":"invalid_parameter","message":"backwards: want true or false","retryable":false}}`},
		{"GET", "/v1/events?limit=5000", "", 400, `{"error":{"code":"invalid_parameter","message":"limit: want a number from 1 to 1000","retryable":false}}`},
		{"POST", "/v1/events/query", `{"query":{"items":[{"types":["None"]}]}}`, 200, `{"events":[],"next":0}`},
		{"POST", "/v1/events/project", `{"queries":[{}]}`, 200, `{"counts":[1],"condition":{"query":{"items":[]},"after":99}}`},
	} {
		api.want(c.method, c.path, c.body, c.status, c.answer)
	}
}
