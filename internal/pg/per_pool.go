package pg

import (
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"
)

// PerPool keeps one T for each pool, with a reference count: Join adds a user, Leave
// removes one. Safe for concurrent use.
type PerPool[T any] struct {
	mu  sync.Mutex
	all map[*pgxpool.Pool]*joined[T]
}

type joined[T any] struct {
	of    T
	users int
}

// Join returns the pool's T. The first Join makes it with open.
func (p *PerPool[T]) Join(pool *pgxpool.Pool, open func() T) T {
	p.mu.Lock()
	defer p.mu.Unlock()
	j := p.all[pool]
	if j == nil {
		j = &joined[T]{of: open()}
		if p.all == nil {
			p.all = make(map[*pgxpool.Pool]*joined[T])
		}
		p.all[pool] = j
	}
	j.users++
	return j.of
}

// Leave has to be called once for each Join. It reports whether this was the last user
// of the T: a later Join makes a new one.
func (p *PerPool[T]) Leave(pool *pgxpool.Pool) (last bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	j := p.all[pool]
	if j.users--; j.users > 0 {
		return false
	}
	delete(p.all, pool)
	return true
}
