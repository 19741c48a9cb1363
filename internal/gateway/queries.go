package gateway

import (
	"context"
	"errors"

	"github.com/tidewire/tidewire/internal/engine"
)

// asking is a connection or an HTTP request: package limits bounds how many of a user ask a store at a time.
type asking interface {
	Query(ctx context.Context) (end func(), err error)
}

// notAsked is the error of a wait for a turn that has ended before it came: the store does not have the request.
type notAsked struct{ error }

func (e notAsked) Unwrap() error { return e.error }

// shared is asking for what all users share, too: after the turn of its user it waits for a slot. Its rights are looked at after both.
type shared struct {
	by    limited
	user  string // or its address
	slots *fairSlots
}

// limited is asking that can be told apart from the look at its rights.
type limited interface {
	turn(ctx context.Context) (end func(), err error)
	allowed(ctx context.Context) error
}

// Query waits for both.
func (s shared) Query(ctx context.Context) (end func(), err error) {
	endTurn, err := s.by.turn(ctx)
	if err != nil {
		return nil, err
	}
	release, err := s.slots.acquire(ctx, s.user)
	if err != nil {
		endTurn()
		return nil, err
	}
	end = func() {
		release()
		endTurn()
	}
	if err := s.by.allowed(ctx); err != nil {
		end()
		return nil, err
	}
	return end, nil
}

// errRefused is the error of a request that has been refused after its wait, and answered.
var errRefused = errors.New("gateway: refused, and answered")

// sessionQuery is a request on /ws that asks a store.
type sessionQuery struct {
	s *session
	r *request
}

// Query waits for the turn of the user. Then it looks at the rights again: they may have ended meanwhile.
func (q sessionQuery) Query(ctx context.Context) (end func(), err error) { return inTurn(ctx, q) }

func (q sessionQuery) turn(ctx context.Context) (end func(), err error) {
	return q.s.conn.socket.Query(ctx)
}

func (q sessionQuery) allowed(ctx context.Context) error {
	why := q.s.stillDenied(ctx, q.r)
	if why == nil {
		return nil
	}
	q.s.refuseFor(q.r.asked(), why)
	return errRefused
}

// inTurn waits for the turn of the user, and then looks at the rights.
func inTurn(ctx context.Context, by limited) (end func(), err error) {
	if end, err = by.turn(ctx); err != nil {
		return nil, err
	}
	if err := by.allowed(ctx); err != nil {
		end()
		return nil, err
	}
	return end, nil
}

// stillDenied returns why the client may not have a request any more. Unlike denied, it may be called in any goroutine.
func (s *session) stillDenied(ctx context.Context, r *request) *problem {
	policy, caller := s.conn.identity.policy, s.conn.identity.caller.Load()
	switch {
	case policy == nil:
		return nil
	case caller == nil || !policy.Valid(caller):
		return because(codeInvalidToken)
	case expired(caller):
		return because(codeTokenExpired)
	}
	return r.denied(ctx, caller)
}

// Query is the same for an HTTP request.
func (c *call) Query(ctx context.Context) (end func(), err error) { return inTurn(ctx, c) }

func (c *call) turn(ctx context.Context) (end func(), err error) { return c.count.Query(ctx) }

func (c *call) allowed(context.Context) error {
	if !c.stillAuthorized() {
		return errRefused
	}
	return nil
}

// appendInTurn appends events. An append with a condition waits for the turn of its user, because PostgreSQL looks for the events that the condition
// names, and few expensive conditions are checked at a time.
func appendInTurn(ctx context.Context, by asking, store engine.Events, name string, as *engine.RequestID, events []engine.Event, condition *engine.EventCondition) (engine.AppendedEvents, error) {
	ask := func() (engine.AppendedEvents, error) { return store.Append(ctx, name, as, events, condition) }
	if condition == nil {
		return ask()
	}
	return query(ctx, by, ask)
}

// query asks a store when it is the turn of its user.
func query[T any](ctx context.Context, by asking, ask func() (T, error)) (answer T, err error) {
	end, err := by.Query(ctx)
	if err != nil {
		return answer, notAsked{err}
	}
	defer end()
	return ask()
}
