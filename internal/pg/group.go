package pg

import (
	"context"
	"runtime"
	"sync"
	"time"
)

// Group is a group commit. It gathers what many callers add into one open batch
// while the batch before it is committed: the busier the callers and the slower
// the commit, the larger the batches, so that the fixed cost of a commit (round
// trip, fsync) is paid once for many calls.
//
// Right after a commit a batch may linger for 1 or 2 ms, to wait for more calls:
// lingerPolicy decides. A Group that has been idle for a millisecond commits the
// next call at once.
//
// Two batches exist in all, one gathering and one with the committer, so
// memory stays below twice the limit plus one Add.
type Group[B any] struct {
	maxRows, maxBytes int
	linger            time.Duration
	admit             func(ctx context.Context)
	dismiss           func()
	idle              time.Duration // after which Next returns; 0 if it waits without limit
	timer             *time.Timer   // for idle
	policy            lingerPolicy  // only Run uses it
	gathered          chan struct{} // one slot: the open batch is not empty
	enough            chan struct{} // one slot: the open batch need not wait for more

	mu          sync.Mutex
	open        *B
	spare       *B
	adds        int           // to open
	want        int           // number of adds at which the batch stops waiting: that of the batch before
	half        time.Time     // middle of an open-loop wait, which want does not end; else zero
	late        int           // adds after half
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

// Linger makes each batch wait for d, unless it is full earlier: fewer and larger
// commits, at the cost of that latency. Call it before Run. It returns the Group.
func (g *Group[B]) Linger(d time.Duration) *Group[B] {
	g.linger = d
	return g
}

// Admit makes each batch gather until admit returns. admit acquires what the commit
// needs, such as a connection. dismiss releases it if Do has emptied the batch
// meanwhile. Call it before Run. It returns the Group.
func (g *Group[B]) Admit(admit func(ctx context.Context), dismiss func()) *Group[B] {
	g.admit, g.dismiss = admit, dismiss
	return g
}

// ReturnIdle makes Next return also when nothing was added for d. Call it before Next. It
// returns the Group.
func (g *Group[B]) ReturnIdle(d time.Duration) *Group[B] {
	g.idle = d
	return g
}

// Add calls fill with the open batch, under the Group's lock, as soon as it
// has room, and counts the rows and bytes that fill puts there. It returns
// ctx's error, and has added nothing, if ctx ends first. Safe for concurrent
// use; one Add is never split between batches.
func (g *Group[B]) Add(ctx context.Context, rows, bytes int, fill func(*B)) error {
	_, err := g.AddIf(ctx, nil, rows, bytes, func(b *B) bool { fill(b); return true })
	return err
}

// AddIf is Add with a fill that may add nothing: then fill returns false, and so does
// AddIf. AddIf also returns false, and does not call fill, if giveUp is closed while it
// waits for room.
func (g *Group[B]) AddIf(ctx context.Context, giveUp <-chan struct{}, rows, bytes int, fill func(*B) bool) (added bool, err error) {
	g.mu.Lock()
	for g.full() {
		if g.room == nil {
			g.room = make(chan struct{})
		}
		room := g.room
		g.mu.Unlock()
		select {
		case <-room:
		case <-giveUp:
			return false, nil
		case <-ctx.Done():
			return false, ctx.Err()
		}
		g.mu.Lock()
	}
	if !fill(g.open) {
		g.mu.Unlock()
		return false, nil
	}
	g.rows += rows
	g.bytes += bytes
	g.adds++
	if !g.half.IsZero() && time.Now().After(g.half) {
		g.late++
	}
	enough := g.enoughNow()
	g.mu.Unlock()
	Signal(g.gathered)
	if enough {
		Signal(g.enough)
	}
	return true, nil
}

// Do calls do with the open batch, under the Group's lock. do returns how many rows and
// bytes it has removed from the batch.
func (g *Group[B]) Do(do func(open *B) (rows, bytes int)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	rows, bytes := do(g.open)
	g.rows -= rows
	g.bytes -= bytes
	if g.room != nil && !g.full() {
		close(g.room)
		g.room = nil
	}
}

// IfEmpty calls do, under the Group's lock, if the open batch is empty.
func (g *Group[B]) IfEmpty(do func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.rows == 0 {
		do()
	}
}

// Wake makes Next return soon, also if the open batch is empty.
func (g *Group[B]) Wake() { Signal(g.gathered) }

// Run calls commit with one batch after the other until ctx ends; then it commits
// the open batch and returns. commit empties its batch before it returns. The
// caller ends ctx after the last Add. commit gets the context work and not ctx,
// because accepted calls have to be written also after ctx has ended.
func (g *Group[B]) Run(ctx, work context.Context, commit func(context.Context, *B)) {
	for g.Next(ctx, work, commit) {
	}
}

// Next is one turn of Run, for a caller with other work in between: it waits until
// something was added, and commits that. It returns false when ctx has ended and the
// open batch is committed. Some turns commit nothing.
func (g *Group[B]) Next(ctx, work context.Context, commit func(context.Context, *B)) bool {
	select {
	case <-g.gathered:
	case <-g.idleTimer():
		return true
	case <-ctx.Done():
		if batch := g.take(); batch != nil {
			commit(work, batch)
		}
		return false
	}
	if g.empty() { // the signal was for calls that the batch before contained
		return true
	}
	g.wait(ctx)
	g.letArrive()
	if g.admit != nil {
		g.admit(work)
	}
	if batch := g.take(); batch != nil {
		began := time.Now()
		commit(work, batch)
		g.policy.committed(began, time.Now())
	} else if g.dismiss != nil {
		g.dismiss()
	}
	return true
}

// idleTimer returns a channel that fires when Next has been idle for long enough, or nil.
func (g *Group[B]) idleTimer() <-chan time.Time {
	switch {
	case g.idle == 0:
		return nil
	case g.timer == nil:
		g.timer = time.NewTimer(g.idle)
	default:
		g.timer.Reset(g.idle)
	}
	return g.timer.C
}

// wait lingers: it waits for more calls to share the commit of the batch.
func (g *Group[B]) wait(ctx context.Context) {
	if g.linger > 0 {
		g.waitFor(ctx, g.linger)
		return
	}
	switch g.policy.next(time.Now()) {
	case closedLoop:
		g.waitClosedLoop(ctx)
	case openLoop:
		g.waitOpenLoop(ctx)
	}
}

// waitClosedLoop waits until the batch has as many calls as the batch before had.
func (g *Group[B]) waitClosedLoop(ctx context.Context) {
	if g.ready() || !g.policy.tries() {
		return
	}
	began, before := time.Now(), g.count()
	ready := g.waitFor(ctx, closedWait)
	g.policy.waited(ready, time.Since(began), before, g.count())
}

// waitOpenLoop waits for all of openWait, unless the batch is large earlier.
func (g *Group[B]) waitOpenLoop(ctx context.Context) {
	g.mu.Lock()
	g.half, g.late = time.Now().Add(openWait/2), 0
	g.mu.Unlock()
	full := g.waitFor(ctx, openWait)
	g.mu.Lock()
	late := g.late
	g.half = time.Time{}
	g.mu.Unlock()
	if !full {
		g.policy.arrivedLate(late)
	}
}

// waitFor reports whether the batch is ready within that time.
func (g *Group[B]) waitFor(ctx context.Context, limit time.Duration) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for !g.ready() {
		select {
		case <-g.enough: // perhaps a signal for the batch before
		case <-timer.C:
			return false
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// letArrive lets goroutines that are ready to run add first, as long as rows keep
// coming. A closed loop of 100 callers gains 5 % (docs/explanation/strategies.md):
// the callers that were just answered are about to call again, and a caller that
// misses this commit has to wait for the next. In an idle process this takes a
// microsecond.
func (g *Group[B]) letArrive() {
	const turns, quiet = 200, 3 // at most; turns without a new row that end it
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

// count is the number of adds to the open batch.
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
	return g.adds >= g.want && g.half.IsZero() || g.bytes >= smallBatch || g.full()
}

// full reports whether callers have to wait. The caller holds mu.
func (g *Group[B]) full() bool {
	return g.rows > 0 && (g.rows >= g.maxRows || g.bytes >= g.maxBytes)
}

// take swaps the batches and wakes the callers that wait for room. The spare
// batch is empty: the only committer is done with it.
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
