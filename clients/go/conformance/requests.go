package main

import (
	"context"
	"errors"
	"os"
	"time"

	"encoding/json"

	"github.com/tidewire/tidewire/clients/go"
)

// open makes a client.
func (r *runner) open(c *command) error {
	options := tidewire.Options{
		Timeout: ms(c.Timeout), MaxPending: c.Pending, MaxPendingBytes: c.Bytes, NoBatch: c.Batch != nil && !*c.Batch,
		OnState: func(s tidewire.State) { r.state(c.Client, s) },
	}
	if os.Getenv("TIDEWIRE_ENCODING") == "json" {
		options.Encoding = tidewire.JSON
	}
	switch token := c.Token.(type) {
	case string:
		options.APIKey = token
	case []any:
		n := 0
		options.Token = func(_ context.Context, refused bool) (string, error) {
			r.event(c.Client, "token", fields{"refused": refused})
			text, _ := token[min(n, len(token)-1)].(string)
			n++
			return text, nil
		}
	}
	client, err := tidewire.Open(c.URL, options)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.clients[c.Client] = client
	return nil
}

func (r *runner) state(client string, s tidewire.State) {
	more := fields{"state": s.Phase.String()}
	if s.Phase == tidewire.Waiting {
		more["retry_ms"] = time.Until(s.RetryAt).Milliseconds()
	}
	if s.Err != nil {
		more["error"] = describe(s.Err)
	}
	r.event(client, "state", more)
}

func (r *runner) close(c *command) (fields, error) {
	return fields{}, r.client(c.Client).Close()
}

func (c *command) values() []json.RawMessage {
	if c.Values != nil {
		return c.Values
	}
	return []json.RawMessage{c.Value}
}

func (c *command) message() []tidewire.MessageOption {
	options := []tidewire.MessageOption{tidewire.Timeout(ms(c.Timeout))}
	if c.Key != "" {
		options = append(options, tidewire.Key(c.Key))
	}
	if c.Headers != nil {
		options = append(options, tidewire.Headers(c.Headers))
	}
	return options
}

func (c *command) publishOptions() (all []tidewire.PublishOption) {
	for _, o := range c.message() {
		all = append(all, o)
	}
	return all
}

// publish begins at once, and waits in the background.
func (r *runner) publish(c *command) {
	s := tidewire.StreamOf[json.RawMessage](r.client(c.Client), c.Stream)
	pending := s.PublishAllAsync(context.Background(), c.values(), c.publishOptions()...)
	go r.await(c, pending)
}

// publishUntil publishes, and gives up after a time.
func (r *runner) publishUntil(c *command) (fields, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	time.AfterFunc(ms(c.Cancel), cancel)
	p, err := tidewire.StreamOf[json.RawMessage](r.client(c.Client), c.Stream).PublishAll(ctx, c.values(), c.publishOptions()...)
	return placed(p), err
}

func placed(p tidewire.Published) fields {
	return fields{"position": p.Position, "count": p.Count, "duplicate": p.Duplicate}
}

// enqueue begins at once, and waits in the background.
func (r *runner) enqueue(c *command) {
	options := []tidewire.EnqueueOption{tidewire.Delay(ms(c.Delay)), tidewire.Priority(c.Priority)}
	if c.UniqueKey != "" {
		options = append(options, tidewire.Unique(c.UniqueKey, ms(c.UniqueMS)))
	}
	for _, o := range c.message() {
		options = append(options, o)
	}
	pending := tidewire.QueueOf[json.RawMessage](r.client(c.Client), c.Queue).EnqueueAllAsync(context.Background(), c.values(), options...)
	go r.await(c, pending)
}

func (r *runner) await(c *command, pending *tidewire.Pending) {
	p, err := pending.Wait(context.Background())
	r.answer(c, placed(p), err)
}

func (r *runner) append(c *command) (fields, error) {
	events := make([]tidewire.Event, len(c.Events))
	for i, e := range c.Events {
		events[i] = e.event()
	}
	options := []tidewire.AppendOption{tidewire.Timeout(ms(c.Timeout))}
	if c.Condition != nil {
		options = append(options, tidewire.If(c.Condition.Query, c.Condition.After))
	}
	a, err := r.client(c.Client).Events(c.Store).Append(context.Background(), events, options...)
	return fields{"positions": a.Positions}, err
}

func describeEvent(e tidewire.Event) fields {
	f := fields{"position": e.Position, "type": e.Type, "tags": e.Tags}
	if e.Data != nil {
		f["data"] = e.Data
	}
	return f
}

func (r *runner) query(c *command) (fields, error) {
	after := int64(0)
	if c.After != nil {
		after = *c.After
	}
	events := []fields{}
	for e, err := range r.client(c.Client).Events(c.Store).Query(context.Background(), c.Query, tidewire.After(after)) {
		if err != nil {
			return nil, err
		}
		events = append(events, describeEvent(e))
	}
	return fields{"events": events}, nil
}

func (r *runner) project(c *command) (fields, error) {
	counts, err := r.client(c.Client).Events(c.Store).Project(context.Background(), c.Queries...)
	return fields{"counts": counts.Counts}, err
}

func (r *runner) decide(c *command) (fields, error) {
	tries := 0
	a, err := tidewire.Decide(context.Background(), r.client(c.Client).Events(c.Store), tidewire.Decision[int]{
		Query: c.Query, Attempts: c.Attempts,
		Fold: func(n int, _ tidewire.Event) int { return n + 1 },
		Decide: func(n int) ([]tidewire.Event, error) {
			tries++
			if n >= c.Max {
				return nil, errors.New("enough events")
			}
			return []tidewire.Event{c.Event.event()}, nil
		},
	})
	return fields{"positions": a.Positions, "tries": tries}, err
}
