package inprocess

import (
	"context"
	"iter"

	"github.com/tidewire/tidewire/clients/go"
	"github.com/tidewire/tidewire/eventstore"
)

type events struct{ s *eventstore.Store }

// Events returns an event store.
func Events(s *eventstore.Store) tidewire.EventStore { return events{s} }

func query(q tidewire.Query) eventstore.Query {
	if len(q.Items) == 0 {
		return eventstore.Everything()
	}
	var all eventstore.Query
	for _, i := range q.Items {
		all.Items = append(all.Items, eventstore.Item{Types: i.Types, Tags: i.Tags})
	}
	return all
}

func event(e eventstore.Event) tidewire.Event {
	out := tidewire.Event{Position: e.Position, Time: e.Time, Type: e.Type, Tags: e.Tags, ID: e.ID}
	if e.JSON {
		out.Data = e.Data
	} else if len(e.Data) > 0 {
		out.Bytes = e.Data
	}
	return out
}

func (s events) Append(ctx context.Context, all []tidewire.Event, options ...tidewire.AppendOption) (tidewire.Appended, error) {
	o := tidewire.NewAppendOptions(options...)
	if err := o.Check(); err != nil {
		return tidewire.Appended{}, err
	}
	ctx, cancel := until(ctx, o.Timeout)
	defer cancel()
	in := make([]eventstore.Event, len(all))
	for i, e := range all {
		in[i] = eventstore.Event{Type: e.Type, Tags: e.Tags, ID: e.ID, Data: e.Bytes}
		if e.Data != nil {
			in[i].Data, in[i].JSON = e.Data, true
		}
	}
	var a eventstore.Appended
	var err error
	if c := o.Condition; c != nil {
		a, err = s.s.AppendIf(ctx, in, eventstore.Condition{FailIfEventsMatch: query(c.Query), After: c.After})
	} else {
		a, err = s.s.Append(ctx, in...)
	}
	if err != nil {
		return tidewire.Appended{}, failed(err)
	}
	out := tidewire.Appended{Duplicate: a.Duplicate}
	for p := a.First; p <= a.Last; p++ {
		out.Positions = append(out.Positions, p)
	}
	return out, nil
}

func (s events) Query(ctx context.Context, q tidewire.Query, options ...tidewire.ReadOption) iter.Seq2[tidewire.Event, error] {
	return converted(s.s.QueryStream(ctx, query(q), eventstore.ReadOptions{After: tidewire.NewReadOptions(options...).After}))
}

func (s events) Follow(ctx context.Context, q tidewire.Query, options ...tidewire.ReadOption) iter.Seq2[tidewire.Event, error] {
	return converted(s.s.Subscribe(ctx, query(q), eventstore.After(tidewire.NewReadOptions(options...).After)))
}

func converted(all iter.Seq2[eventstore.Event, error]) iter.Seq2[tidewire.Event, error] {
	return func(yield func(tidewire.Event, error) bool) {
		for e, err := range all {
			if !yield(event(e), failed(err)) || err != nil {
				return
			}
		}
	}
}

func (s events) Project(ctx context.Context, queries ...tidewire.Query) (tidewire.Counts, error) {
	head, err := s.s.Head(ctx)
	if err != nil {
		return tidewire.Counts{}, failed(err)
	}
	counts := tidewire.Counts{Condition: tidewire.Condition{Query: tidewire.AnyOf(queries...), After: head}, Counts: make([]int64, len(queries))}
	for i, q := range queries {
		for _, err := range s.s.QueryStream(ctx, query(q), eventstore.ReadOptions{Before: head + 1}) {
			if err != nil {
				return tidewire.Counts{}, failed(err)
			}
			counts.Counts[i]++
		}
	}
	return counts, nil
}
