package pg

import (
	"context"
	"runtime"
	"sync"
)

// Group gathers what many callers add into one open batch while the batch
// before it is committed: the busier the callers and the slower the commit,
// the larger the batches, so that the fixed cost of a commit (round trip,
// fsync) is paid once for many. No timer is involved: an idle Group commits
// the first thing added at once.
//
// Two batches exist in all, one gathering and one with the committer, so
// memory stays below twice the limit plus one Add.
type Group[B any] struct {
	maxRows, maxBytes int
	gathered          chan struct{} // one slot: the open batch is not empty

	mu          sync.Mutex
	open        *B
	spare       *B
	rows, bytes int           // in open
	room        chan struct{} // closed when open is taken; nil while nobody waits
}

// NewGroup returns a Group that alternates between the two batches given and
// lets callers wait once the open one holds maxRows rows or maxBytes bytes.
func NewGroup[B any](a, b *B, maxRows, maxBytes int) *Group[B] {
	return &Group[B]{
		maxRows: maxRows, maxBytes: maxBytes,
		gathered: make(chan struct{}, 1),
		open:     a, spare: b,
	}
}

// Add calls fill with the open batch, under the Group's lock, as soon as it
// has room, and counts the rows and bytes that fill puts there. It returns
// ctx's error, and has added nothing, if ctx ends first. Safe for concurrent
// use; one Add is never split between batches.
func (g *Group[B]) Add(ctx context.Context, rows, bytes int, fill func(*B)) error {
	g.mu.Lock()
	for g.full() {
		if g.room == nil {
			g.room = make(chan struct{})
		}
		room := g.room
		g.mu.Unlock()
		select {
		case <-room:
		case <-ctx.Done():
			return ctx.Err()
		}
		g.mu.Lock()
	}
	fill(g.open)
	g.rows += rows
	g.bytes += bytes
	g.mu.Unlock()
	select {
	case g.gathered <- struct{}{}:
	default:
	}
	return nil
}

// Run hands one batch after the other to commit, which empties it before it
// returns, until ctx ends; then it commits what is still open and returns. The
// caller ends ctx after the last Add. commit is given work and not ctx: what
// was accepted is still to be written.
func (g *Group[B]) Run(ctx, work context.Context, commit func(context.Context, *B)) {
	for {
		select {
		case <-g.gathered:
		case <-ctx.Done():
			if batch := g.take(); batch != nil {
				commit(work, batch)
			}
			return
		}
		g.letArrive()
		if batch := g.take(); batch != nil {
			commit(work, batch)
		}
	}
}

// letArrive lets the callers that are ready to run add first, as long as rows
// keep coming. A closed loop of 100 callers gains 5 % (docs/strategies.md): the
// callers just answered are on their way back, and those a commit is taken
// without have to wait for the next. An idle process goes through this in a
// microsecond.
func (g *Group[B]) letArrive() {
	const turns, quiet = 200, 3 // at most, and without a new row
	last := 0
	for turn, unchanged := 0, 0; turn < turns && unchanged < quiet; turn++ {
		runtime.Gosched()
		g.mu.Lock()
		rows, full := g.rows, g.full()
		g.mu.Unlock()
		if full {
			return
		}
		if unchanged++; rows != last {
			last, unchanged = rows, 0
		}
	}
}

// full reports whether callers have to wait. The caller holds mu.
func (g *Group[B]) full() bool {
	return g.rows > 0 && (g.rows >= g.maxRows || g.bytes >= g.maxBytes)
}

// take swaps the batches and wakes the callers that wait for room. The spare
// one is empty: the only committer gave it back.
func (g *Group[B]) take() *B {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.rows == 0 {
		return nil
	}
	batch := g.open
	g.open, g.spare = g.spare, batch
	g.rows, g.bytes = 0, 0
	if g.room != nil {
		close(g.room)
		g.room = nil
	}
	return batch
}
