package gateway

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/tidewire/tidewire/internal/engine"
)

const (
	// maxQueried is the most events that one request returns, and defaultQueried
	// the number without a limit in the request.
	maxQueried     = 1000
	defaultQueried = 100
	// maxQueries is how many counts one project may ask for.
	maxQueries = 100
)

// eventFields are an event to be stored.
type eventFields struct {
	Type       string          `json:"type"`
	Tags       []string        `json:"tags"`
	Data       json.RawMessage `json:"data"`
	DataBase64 *string         `json:"data_base64"`
	ID         string          `json:"id"`
}

// event returns the event. It has data in one of the two forms, or none.
func (f *eventFields) event() (e engine.Event, ok bool) {
	e = engine.Event{Type: f.Type, Tags: f.Tags, ID: f.ID}
	if f.DataBase64 == nil {
		e.Data, e.JSON = f.Data, len(f.Data) > 0
		return e, true
	}
	data, err := base64.StdEncoding.DecodeString(*f.DataBase64)
	e.Data = data
	return e, err == nil && len(f.Data) == 0
}

// conditionFields are an append condition. The query is required: without one
// every event would conflict.
type conditionFields struct {
	Query *engine.EventQuery `json:"query"`
	After int64              `json:"after"`
}

// events returns the events that a request appends, and their condition.
func (r *request) events() ([]engine.Event, *engine.EventCondition, error) {
	if len(r.Events) > maxBatch {
		return nil, nil, &engine.FieldError{Field: "events", Problem: fmt.Sprintf("%d events, want at most %d", len(r.Events), maxBatch)}
	}
	events := make([]engine.Event, len(r.Events))
	for i := range r.Events {
		var ok bool
		if events[i], ok = r.Events[i].event(); !ok {
			return nil, nil, &engine.FieldError{Field: fmt.Sprintf("events[%d].data_base64", i), Problem: "want base64, and no data beside it"}
		}
	}
	switch c := r.Condition; {
	case c == nil:
		return events, nil, nil
	case c.Query == nil:
		return nil, nil, &engine.FieldError{Field: "condition.query", Problem: "missing"}
	case c.After < 0:
		return nil, nil, &engine.FieldError{Field: "condition.after", Problem: "positions are not negative"}
	default:
		return events, &engine.EventCondition{Query: *c.Query, After: c.After}, nil
	}
}

// eventRange returns the range of events that a request reads.
func (r *request) eventRange() (engine.EventRange, error) {
	span := engine.EventRange{Before: r.Before, Backwards: r.Backwards, Limit: defaultQueried}
	if r.After != nil {
		span.After = *r.After
	}
	if r.Limit != nil {
		if *r.Limit < 1 || *r.Limit > maxQueried {
			return span, &engine.FieldError{Field: "limit", Problem: fmt.Sprintf("%d, want 1 to %d", *r.Limit, maxQueried)}
		}
		span.Limit = int(*r.Limit)
	}
	if span.After < 0 {
		return span, &engine.FieldError{Field: "after", Problem: "positions are not negative"}
	}
	if span.Before < 0 {
		return span, &engine.FieldError{Field: "before", Problem: "positions are not negative"}
	}
	return span, nil
}

// query returns the request's query; without one it matches all events.
func (r *request) query() engine.EventQuery {
	if r.Query == nil {
		return engine.EventQuery{}
	}
	return *r.Query
}

// queries returns the queries whose events a request counts.
func (r *request) queries() ([]engine.EventQuery, error) {
	if len(r.Queries) == 0 || len(r.Queries) > maxQueries {
		return nil, &engine.FieldError{Field: "queries", Problem: fmt.Sprintf("%d queries, want 1 to %d", len(r.Queries), maxQueries)}
	}
	return r.Queries, nil
}

// appendEvent appends the fields of a stored event, without braces.
func appendEvent(dst []byte, e *engine.Event) []byte {
	dst = strconv.AppendInt(append(dst, `"position":`...), e.Position, 10)
	dst = append(dst, `,"time":"`...)
	dst = e.Time.UTC().AppendFormat(dst, time.RFC3339Nano)
	dst = appendText(append(dst, `","event_type":`...), e.Type)
	dst = append(dst, `,"tags":[`...)
	for i, tag := range e.Tags {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendText(dst, tag)
	}
	dst = append(dst, ']')
	if e.ID != "" {
		dst = appendText(append(dst, `,"event_id":`...), e.ID)
	}
	switch {
	case e.JSON:
		dst = append(append(dst, `,"data":`...), e.Data...)
	case len(e.Data) > 0:
		dst = append(dst, `,"data_base64":"`...)
		dst = append(base64.StdEncoding.AppendEncode(dst, e.Data), '"')
	}
	return dst
}

// appendEvents appends a list of events, and the position at which the next
// page begins.
func appendEvents(dst []byte, events []engine.Event, r engine.EventRange) []byte {
	next := r.After
	if r.Backwards {
		next = r.Before
	}
	dst = append(dst, `"events":[`...)
	for i := range events {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(appendEvent(append(dst, '{'), &events[i]), '}')
		next = events[i].Position
	}
	return appendNext(append(dst, ']'), next)
}
