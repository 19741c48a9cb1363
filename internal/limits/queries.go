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
	u := c.registry.users[c.at.user]
	c.registry.mu.Unlock()
	return u.query(ctx)
}

// Query is the same for an HTTP request.
func (q *Request) Query(ctx context.Context) (end func(), err error) {
	if q == nil {
		return func() {}, nil
	}
	return q.user().query(ctx)
}

func (u *user) query(ctx context.Context) (end func(), err error) {
	if u == nil || u.queries == nil {
		return func() {}, nil
	}
	if err := u.queries.Acquire(ctx, 1); err != nil {
		return nil, err
	}
	return func() { u.queries.Release(1) }, nil
}
