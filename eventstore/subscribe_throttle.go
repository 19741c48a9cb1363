package eventstore

import (
	"context"
	"time"

	"github.com/tidewire/tidewire/internal/pg"
)

// readEvery is the minimum time between two reads of a subscriber at the end of the
// store: otherwise each commit would make every subscriber read.
const readEvery = 5 * time.Millisecond

// throttle holds the time at which a subscriber last read up to the end of the store.
type throttle struct{ last time.Time }

func (p *throttle) read() { p.last = time.Now() }

// wait waits until the next read is due.
func (p *throttle) wait(ctx context.Context) error {
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

// window limits the range of positions that a subscription reads at a time. It is
// unlimited (size 0) until a read times out, because PostgreSQL had to search many
// events for rare matches: without a limit the same read would time out each time.
type window struct{ size int64 }

const (
	topWindow   = 1 << 20
	leastWindow = 1 << 10
)

// before returns the position before which the read ends.
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

// follow is page for subscribers, with a limit on concurrent reads that leaves
// connections of the pool to appends.
func (s *Store) follow(ctx context.Context, r pageRequest) ([]Event, pageResult, error) {
	if err := pg.Acquire(ctx, s.follows); err != nil {
		return nil, pageResult{}, err
	}
	defer func() { <-s.follows }()
	return s.followPage(ctx, r)
}

// watch checks the condition of the call, with checkAlone if it is expensive.
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
