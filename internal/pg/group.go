package pg

import (
	"context"
	"runtime"
	"sync"
	"time"
)

const (
	// patience is how long a batch waits for the callers of the one before, at
	// most, and smallBatch how large it may be, in bytes, to be worth waiting.
	patience   = time.Millisecond
	smallBatch = 16 << 10
	// worthWaiting is how many times as many have to have come by the end of a
	// wait that took longer than a commit.
	worthWaiting = 3
	// maxSkip is how many batches at most do not wait behind waits in vain.
	maxSkip = 16
)

// Group gathers what many callers add into one open batch while the batch
// before it is committed: the busier the callers and the slower the commit,
// the larger the batches, so that the fixed cost of a commit (round trip,
// fsync) is paid once for many.
//
// Right behind a commit, a batch waits until as many have added to it as to the
// one before, but for no longer than a millisecond. Callers that wait for their
// answers, and are back soon, are in the next batch together; of those that come
// at times of their own, often, more share a commit. Where a wait took longer than
// a commit, and did not bring three times as many, it was in vain: the next
// batches do not wait, one, and twice as many each time, up to 16. What comes to a
// Group that has been idle for a millisecond is committed at once.
//
// Two batches exist in all, one gathering and one with the committer, so
// memory stays below twice the limit plus one Add.
type Group[B any] struct {
	maxRows, maxBytes int
	linger            time.Duration
	last              time.Time     // when the last commit ended; this and the next three are Run's alone
	took              time.Duration // that commit
	skip, vain        int           // batches that are not to wait; how many behind the last wait in vain
	gathered          chan struct{} // one slot: the open batch is not empty
	enough            chan struct{} // one slot: the open batch need not wait for more

	mu          sync.Mutex
	open        *B
	spare       *B
	adds        int           // to open
	want        int           // adds from which on nobody waits: those to the batch before
	rows, bytes int           // in open
	room        chan struct{} // closed when open is taken; nil while nobody waits
}

// NewGroup returns a Group that alternates between the two batches given and
// lets callers wait once the open one holds maxRows rows or maxBytes bytes.
func NewGroup[B any](a, b *B, maxRows, maxBytes int) *Group[B] {
	return &Group[B]{
		maxRows: maxRows, maxBytes: maxBytes,
		gathered: make(chan struct{}, 1), enough: make(chan struct{}, 1),
		open: a, spare: b,
	}
}

// Linger has each batch wait for d, unless it is full before: fewer and larger
// commits, for that much latency. Call it before Run. It returns the Group.
func (g *Group[B]) Linger(d time.Duration) *Group[B] {
	g.linger = d
	return g
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
	g.adds++
	enough := g.enoughNow()
	g.mu.Unlock()
	signal(g.gathered)
	if enough {
		signal(g.enough)
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
		if g.empty() { // it was told of what the batch before took along
			continue
		}
		g.wait(ctx)
		g.letArrive()
		if batch := g.take(); batch != nil {
			began := time.Now()
			commit(work, batch)
			g.last = time.Now()
			g.took = g.last.Sub(began)
		}
	}
}

// wait waits for those with whom the batch is to share its commit.
func (g *Group[B]) wait(ctx context.Context) {
	if g.linger > 0 {
		g.waitFor(ctx, g.linger)
		return
	}
	if g.ready() || time.Since(g.last) > patience {
		return
	}
	if g.skip > 0 {
		g.skip--
		return
	}
	began, before := time.Now(), g.count()
	ready := g.waitFor(ctx, patience)
	if ready && time.Since(began) <= g.took || g.count() >= worthWaiting*before {
		g.vain = 0
		return
	}
	g.vain = min(max(1, 2*g.vain), maxSkip)
	g.skip = g.vain
}

// waitFor reports whether the batch is ready within that time.
func (g *Group[B]) waitFor(ctx context.Context, limit time.Duration) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for !g.ready() {
		select {
		case <-g.enough: // perhaps of the batch before
		case <-timer.C:
			return false
		case <-ctx.Done():
			return false
		}
	}
	return true
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

// ready reports whether there is nothing to wait for.
func (g *Group[B]) ready() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.enoughNow()
}

// count is how many have added.
func (g *Group[B]) count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.adds
}

func (g *Group[B]) empty() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.rows == 0
}

// enoughNow reports whether the open batch need not wait. The caller holds mu.
func (g *Group[B]) enoughNow() bool {
	if g.linger > 0 {
		return g.full()
	}
	return g.adds >= g.want || g.bytes >= smallBatch || g.full()
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
	g.adds, g.want = 0, g.adds
	g.rows, g.bytes = 0, 0
	if g.room != nil {
		close(g.room)
		g.room = nil
	}
	return batch
}

// signal fills a channel of one slot.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
