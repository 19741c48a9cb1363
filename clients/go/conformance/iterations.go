package main

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/tidewire/tidewire/clients/go"
)

// gate stops a program that is to take nothing.
type gate struct {
	mu   sync.Mutex
	open chan struct{} // closed while it is open
}

func newGate() *gate {
	g := &gate{open: make(chan struct{})}
	close(g.open)
	return g
}

func (g *gate) set(shut bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-g.open:
		if shut {
			g.open = make(chan struct{})
		}
	default:
		if !shut {
			close(g.open)
		}
	}
}

func (g *gate) pass(done <-chan struct{}) {
	g.mu.Lock()
	open := g.open
	g.mu.Unlock()
	select {
	case <-open:
	case <-done:
	}
}

// iteration is a program that takes messages or events.
type iteration struct {
	gate  *gate
	done  chan struct{} // closed by unsubscribe
	close func() error
	sub   *tidewire.Subscription[any]
}

func (r *runner) begin(name string, i *iteration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	i.gate, i.done = newGate(), make(chan struct{})
	r.subs[name] = i
}

// codec is the codec of a command.
type codec string

func (codec) Encode(value any) ([]byte, error) { return json.Marshal(value) }

func (c codec) Decode(payload []byte) (value any, err error) {
	switch c {
	case "text":
		return string(payload), nil
	case "number":
		return strconv.ParseFloat(string(payload), 64)
	}
	err = json.Unmarshal(payload, &value)
	return value, err
}

func (r *runner) subscribeOptions(c *command) []tidewire.SubscribeOption {
	partitions := func(event string) func([]int) {
		return func(p []int) { r.event(c.As, event, fields{"partitions": p}) }
	}
	options := []tidewire.SubscribeOption{tidewire.OnAssigned(partitions("assigned")), tidewire.OnRevoked(partitions("revoked"))}
	add := func(o tidewire.SubscribeOption, when bool) {
		if when {
			options = append(options, o)
		}
	}
	if c.After != nil {
		add(tidewire.After(*c.After), true)
	}
	at, _ := time.Parse(time.RFC3339Nano, c.At)
	add(tidewire.At(at), c.At != "")
	add(tidewire.FromStart(), c.From == "start")
	add(tidewire.Group(c.Group), c.Group != "")
	add(tidewire.Share(), c.Share)
	add(tidewire.Keys(c.Keys...), len(c.Keys) > 0)
	add(tidewire.Credits(c.Credits), c.Credits > 0)
	add(tidewire.OnGap(func(g tidewire.Gap) {
		r.event(c.As, "gap", fields{"code": g.Code, "oldest": g.Oldest, "partition": g.Partition, "position": g.Position, "size": g.Size})
	}), c.OnGap == "skip")
	add(tidewire.OnInvalid(func(e *tidewire.InvalidMessageError) {
		r.event(c.As, "invalid", fields{"position": e.Message.Position})
	}), c.OnInvalid == "report")
	if len(c.Headers) > 0 {
		headers := map[string]string{}
		for name, value := range c.Headers {
			headers[name], _ = value.(string)
		}
		add(tidewire.WithHeaders(headers), true)
	}
	return options
}

func (r *runner) subscribe(c *command) (fields, error) {
	s := tidewire.StreamOf[any](r.client(c.Client), c.Stream).WithCodec(codec(c.Codec))
	sub, err := s.Subscribe(context.Background(), r.subscribeOptions(c)...)
	if err != nil {
		return nil, err
	}
	position := sub.Position() // before the first message moves it
	i := &iteration{close: sub.Close, sub: sub}
	r.begin(c.As, i)
	if c.Pages > 0 {
		go r.pages(c, i)
	} else {
		go r.messages(c, i)
	}
	if c.Share {
		return fields{}, nil
	}
	return fields{"position": position}, nil
}

func (r *runner) messages(c *command, i *iteration) {
	var failure error
	for again := true; again; again = r.committed(c, i, failure) {
		failure = nil
		for m, err := range i.sub.Messages(context.Background()) {
			if r.caught(c, err) {
				continue
			}
			if failure = err; err != nil {
				break
			}
			r.message(c.As, m)
			time.Sleep(ms(c.Pause))
			i.gate.pass(i.done)
		}
	}
	r.event(c.As, "end", fields{"error": describe(failure)})
}

// committed reports whether the program has committed what is missing, and iterates again.
func (r *runner) committed(c *command, i *iteration, err error) bool {
	var large *tidewire.MessageTooLargeError
	if c.OnGap != "commit" || !errors.As(err, &large) {
		return false
	}
	r.event(c.As, "gap", fields{"code": large.Err.Code, "oldest": large.Position + 1, "partition": large.Partition})
	_, err = i.sub.CommitTo(context.Background(), large.Partition, large.Position)
	return err == nil
}

// caught reports whether the program goes on after an error.
func (r *runner) caught(c *command, err error) bool {
	var invalid *tidewire.InvalidMessageError
	if c.OnInvalid != "catch" || !errors.As(err, &invalid) {
		return false
	}
	r.event(c.As, "invalid", fields{"position": invalid.Message.Position})
	return true
}

func (r *runner) message(on string, m tidewire.Message[any]) {
	more := fields{"position": m.Position, "value": m.Value, "partition": m.Partition}
	if m.Key != "" {
		more["key"] = m.Key
	}
	if m.Headers != nil {
		more["headers"] = m.Headers
	}
	r.event(on, "message", more)
}

func (r *runner) pages(c *command, i *iteration) {
	var failure error
	for p, err := range i.sub.Pages(context.Background(), c.Pages) {
		if r.caught(c, err) {
			continue
		}
		if failure = err; err != nil {
			break
		}
		positions := []int64{}
		for _, m := range p.Messages {
			r.message(c.As, m)
			positions = append(positions, m.Position)
		}
		r.event(c.As, "page", fields{"positions": positions})
		i.gate.pass(i.done)
	}
	r.event(c.As, "end", fields{"error": describe(failure)})
}

func (r *runner) follow(c *command) (fields, error) {
	after := int64(0)
	if c.After != nil {
		after = *c.After
	}
	sub, err := r.client(c.Client).Events(c.Store).Subscribe(context.Background(), c.Query, tidewire.After(after))
	if err != nil {
		return nil, err
	}
	i := &iteration{close: sub.Close}
	r.begin(c.As, i)
	position := sub.Position()
	go func() {
		var failure error
		for e, err := range sub.Events(context.Background()) {
			if failure = err; err != nil {
				break
			}
			r.event(c.As, "event", describeEvent(e))
			i.gate.pass(i.done)
		}
		r.event(c.As, "end", fields{"error": describe(failure)})
	}()
	return fields{"position": position}, nil
}

func (r *runner) commit(c *command) (fields, error) {
	position, err := r.sub(c.On).sub.CommitTo(context.Background(), c.Partition, c.Position)
	return fields{"position": position}, err
}

func (r *runner) unsubscribe(c *command) (fields, error) {
	i := r.sub(c.On)
	close(i.done)
	return fields{}, i.close()
}

func (r *runner) join(c *command) (fields, error) {
	var options []tidewire.JoinOption
	if c.User != "" {
		options = append(options, tidewire.User(c.User))
	}
	if c.History > 0 {
		options = append(options, tidewire.History(c.History))
	}
	if c.After != nil {
		options = append(options, tidewire.After(*c.After))
	}
	if c.Presence {
		options = append(options, tidewire.WithPresence())
	}
	m, err := r.client(c.Client).Room(c.Room).Join(context.Background(), options...)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	r.members[c.As] = m
	r.mu.Unlock()
	ok := fields{}
	if m.Stored() {
		ok["position"] = m.Position()
	}
	go r.roomEvents(c.As, m)
	return ok, nil
}

func (r *runner) roomEvents(as string, m *tidewire.Membership) {
	var failure error
	for e, err := range m.Events(context.Background()) {
		if failure = err; err != nil {
			break
		}
		switch e := e.(type) {
		case *tidewire.Chat:
			r.event(as, "chat", fields{"user": e.User, "text": e.Text, "position": e.Position})
		case *tidewire.Presence:
			r.event(as, "presence", fields{"members": e.Members, "joined": e.Joined, "left": e.Left})
		case *tidewire.Missed:
			more := fields{"missed": nil}
			if e.Count > 0 {
				more["missed"] = e.Count
			}
			r.event(as, "gap", more)
		case *tidewire.HistoryLost:
			r.event(as, "history_lost", fields{"last": e.Last, "up_to": e.UpTo})
		}
	}
	r.event(as, "end", fields{"error": describe(failure)})
}

func (r *runner) chat(c *command) (fields, error) {
	m := r.member(c.On)
	p, err := m.Chat(context.Background(), c.Text, tidewire.Timeout(ms(c.Timeout)))
	ok := fields{}
	if m.Stored() {
		ok["position"] = p.Position
	}
	return ok, err
}

func (r *runner) membersOf(c *command) (fields, error) {
	return fields{"members": r.member(c.On).Members()}, nil
}

func (r *runner) leave(c *command) (fields, error) { return fields{}, r.member(c.On).Leave() }
