package gateway

import (
	"context"
	"sync"
)

// pending counts requests that are not answered yet.
type pending struct {
	mu   sync.Mutex
	n    int
	idle chan struct{} // closed when n is 0; nil while nobody waits
}

func (p *pending) add() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.n++
}

func (p *pending) done() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.n--; p.n == 0 && p.idle != nil {
		close(p.idle)
		p.idle = nil
	}
}

// await is p.wait, unless the connection is broken: then a pending request may
// never have reached a store.
func (c *connection) await(p *pending, ctx context.Context) {
	if !c.broken.Load() {
		p.wait(ctx)
	}
}

// wait returns when everything is answered, or ctx ends.
func (p *pending) wait(ctx context.Context) {
	p.mu.Lock()
	if p.n == 0 {
		p.mu.Unlock()
		return
	}
	if p.idle == nil {
		p.idle = make(chan struct{})
	}
	idle := p.idle
	p.mu.Unlock()
	select {
	case <-idle:
	case <-ctx.Done():
	}
}
