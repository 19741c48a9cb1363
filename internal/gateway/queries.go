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

// errRefused is the error of a request that has been refused after its wait, and answered.
var errRefused = errors.New("gateway: refused, and answered")

// sessionQuery is a request on /ws that asks a store.
type sessionQuery struct {
	s *session
	r *request
}

// Query waits for the turn of the user. Then it looks at the rights again: they may have ended meanwhile.
func (q sessionQuery) Query(ctx context.Context) (end func(), err error) {
	if end, err = q.s.conn.socket.Query(ctx); err != nil {
		return nil, err
	}
	if why := q.s.stillDenied(ctx, q.r); why != nil {
		end()
		q.s.refuseFor(q.r.asked, why)
		return nil, errRefused
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
	}
	return r.denied(ctx, caller)
}

// Query is the same for an HTTP request.
func (c *call) Query(ctx context.Context) (end func(), err error) {
	if end, err = c.count.Query(ctx); err != nil {
		return nil, err
	}
	if !c.stillAuthorized() {
		end()
		return nil, errRefused
	}
	return end, nil
}

// appendInTurn appends events. An append with a condition waits for the turn of its user, because PostgreSQL looks for the events that the condition
// names, and few expensive conditions are checked at a time.
func appendInTurn(ctx context.Context, by asking, store engine.Events, name string, events []engine.Event, condition *engine.EventCondition) ([]int64, error) {
	ask := func() ([]int64, error) { return store.Append(ctx, name, events, condition) }
	if condition == nil {
		return ask()
	}
	return query(ctx, by, ask)
}

// query asks a store when it is the turn of its user.
func query[T any](ctx context.Context, by asking, ask func() (T, error)) (answer T, err error) {
	end, err := by.Query(ctx)
	if err != nil {
		return answer, err
	}
	defer end()
	return ask()
}
