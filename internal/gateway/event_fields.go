package gateway

import (
	"fmt"
	"strings"

	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/wire"
)

const (
	// maxQueried is the most events that one request returns, and defaultQueried
	// the number without a limit in the request.
	maxQueried     = 1000
	defaultQueried = 100
	// maxQueries is how many counts one project may ask for.
	maxQueries = 100
)

// events returns the events that a request appends, and their condition.
func (r *request) events() ([]engine.Event, *engine.EventCondition, error) {
	if len(r.Events) > maxBatch {
		return nil, nil, &engine.FieldError{Field: "events", Problem: fmt.Sprintf("%d events, want at most %d", len(r.Events), maxBatch)}
	}
	separate(r.Events)
	switch {
	case !r.Has(wire.FieldCondition):
		return r.Events, nil, nil
	case !r.Conditional: // every event would conflict
		return nil, nil, &engine.FieldError{Field: "condition.query", Problem: "missing"}
	case r.Condition.After < 0:
		return nil, nil, &engine.FieldError{Field: "condition.after", Problem: "positions are not negative"}
	default:
		return r.Events, &r.Condition, nil
	}
}

// separate gives types and tags memory of their own, which they share. A store keeps them longer than the rest of the message.
func separate(events []engine.Event) {
	var all strings.Builder
	size := 0
	each := func(f func(*string)) {
		for i := range events {
			f(&events[i].Type)
			for t := range events[i].Tags {
				f(&events[i].Tags[t])
			}
		}
	}
	each(func(s *string) { size += len(*s) })
	all.Grow(size)
	each(func(s *string) {
		all.WriteString(*s)
		*s = all.String()[all.Len()-len(*s):]
	})
}

// eventRange returns the range of events that a request reads.
func (r *request) eventRange() (engine.EventRange, error) {
	span := engine.EventRange{Before: r.Before, Backwards: r.Backwards, Limit: defaultQueried}
	span.After = r.After
	if r.Has(wire.FieldLimit) {
		if r.Limit < 1 || r.Limit > maxQueried {
			return span, &engine.FieldError{Field: "limit", Problem: fmt.Sprintf("%d, want 1 to %d", r.Limit, maxQueried)}
		}
		span.Limit = int(r.Limit)
	}
	if span.After < 0 {
		return span, &engine.FieldError{Field: "after", Problem: "positions are not negative"}
	}
	if span.Before < 0 {
		return span, &engine.FieldError{Field: "before", Problem: "positions are not negative"}
	}
	return span, nil
}

// queries returns the queries whose events a request counts.
func (r *request) queries() ([]engine.EventQuery, error) {
	if len(r.Queries) == 0 || len(r.Queries) > maxQueries {
		return nil, &engine.FieldError{Field: "queries", Problem: fmt.Sprintf("%d queries, want 1 to %d", len(r.Queries), maxQueries)}
	}
	return r.Queries, nil
}

// writeEvent writes a stored event, as it can be appended.
func writeEvent(w *wire.Writer, e *engine.Event) {
	w.Open()
	w.Name("position")
	w.Int(e.Position)
	w.Name("time")
	w.Time(e.Time)
	w.Name("type")
	w.Text(e.Type)
	w.Name("tags")
	w.OpenList()
	for _, tag := range e.Tags {
		w.Next()
		w.Text(tag)
	}
	w.CloseList()
	if e.ID != "" {
		w.Name("id")
		w.Text(e.ID)
	}
	switch {
	case e.JSON:
		w.Name("data")
		w.JSON(e.Data)
	case len(e.Data) > 0:
		w.Bytes("data", "data_base64", e.Data)
	}
	w.Close()
}

// writeEvents writes the fields of a list of events, and of the position at which the next page begins.
func writeEvents(w *wire.Writer, events []engine.Event, r engine.EventRange) {
	next := r.After
	if r.Backwards {
		next = r.Before
	}
	w.Name("events")
	w.OpenList()
	for i := range events {
		w.Next()
		writeEvent(w, &events[i])
		next = events[i].Position
	}
	w.CloseList()
	w.Name("next")
	w.Int(next)
}
