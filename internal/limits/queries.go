package limits

import "context"

// A user that asks much would else have most of the connections to PostgreSQL, and most of its processor time, which all of them share: the others
// would wait. What is written in groups, such as messages, does not count: one connection to PostgreSQL stores it for all users.

// Query waits until the user of the connection may ask the store, after all that have waited for longer. Call end after the store's answer, once.
// The error is that of ctx.
func (c *Conn) Query(ctx context.Context) (end func(), err error) {
	if c == nil {
		return func() {}, nil
	}
	c.registry.mu.Lock()
	name := c.at.user
	c.registry.mu.Unlock()
	return c.registry.query(ctx, name)
}

// Query is the same for an HTTP request.
func (q *Request) Query(ctx context.Context) (end func(), err error) {
	if q == nil {
		return func() {}, nil
	}
	return q.registry.query(ctx, q.at.user)
}

func (r *Registry) query(ctx context.Context, name string) (end func(), err error) {
	if name == "" || r.cfg.UserQueries <= 0 {
		return func() {}, nil
	}
	r.mu.Lock()
	u := r.user(name)
	u.counts.queries++ // the user is not forgotten meanwhile
	r.mu.Unlock()
	done := func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		u.counts.queries--
		r.settle(name, u)
	}
	if err := u.queries.Acquire(ctx, 1); err != nil {
		done()
		return nil, err
	}
	return func() {
		u.queries.Release(1)
		done()
	}, nil
}
