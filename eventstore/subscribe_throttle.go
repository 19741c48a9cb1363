package eventstore

import (
	"context"
	"time"

	"github.com/tidewire/tidewire/internal/pg"
)

// readEvery is the least time between two reads of one who follows a store and
// has read all of it: without that each commit has every one of them read.
const readEvery = 5 * time.Millisecond

// pace is when one who follows had read everything.
type pace struct{ last time.Time }

func (p *pace) read() { p.last = time.Now() }

// wait waits until the next read is due.
func (p *pace) wait(ctx context.Context) error {
	left := readEvery - time.Since(p.last)
	if left <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// window is how many positions a subscription reads at a time. It is without
// bound until a read takes too long: matches that are rare among what has to be
// looked at would have the same read fail for ever.
type window struct{ size int64 }

const (
	topWindow   = 1 << 20
	leastWindow = 1 << 10
)

// before is the position before which to read.
func (w *window) before(after int64) int64 {
	if w.size == 0 {
		return noPosition
	}
	return after + w.size + 1
}

func (w *window) shrink() {
	if w.size == 0 {
		w.size = 4 * topWindow
	}
	w.size = max(w.size/4, leastWindow)
}

func (w *window) grow() {
	if w.size *= 2; w.size > topWindow {
		w.size = 0
	}
}

// follow is page for those who follow the store: they leave connections of the
// pool to appends.
func (s *Store) follow(ctx context.Context, r pageRequest) ([]Event, pageResult, error) {
	if err := pg.Acquire(ctx, s.follows); err != nil {
		return nil, pageResult{}, err
	}
	defer func() { <-s.follows }()
	return s.followPage(ctx, r)
}

// watch looks for what the call must not find, apart if that takes long.
func (s *Store) watch(ctx context.Context, look *checker, c *call) (conflicts, error) {
	if err := pg.Acquire(ctx, s.follows); err != nil {
		return conflicts{}, err
	}
	defer func() { <-s.follows }()
	found, err := look.ask(ctx, ahead.budget(c.probes.lookups()), c)
	if err == nil && len(found.calls) > 0 && found.positions[0] == 0 {
		return s.checkAlone(ctx, s.pool, c)
	}
	return found, err
}
