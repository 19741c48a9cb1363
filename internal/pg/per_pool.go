package pg

import (
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"
)

// PerPool keeps one T for each pool, as long as somebody has joined it. Safe for
// concurrent use.
type PerPool[T any] struct {
	mu  sync.Mutex
	all map[*pgxpool.Pool]*joined[T]
}

type joined[T any] struct {
	of    T
	users int
}

// Join returns the pool's T, which open makes for the first that joins.
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

// Leave has to be called once for each Join, and reports whether nobody has the T any
// more: who joins from now on gets another.
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
