package pg

import (
	"context"
	"runtime"
	"sync"
	"time"
)

// Group gathers what many callers add into one open batch while the batch
// before it is committed: the busier the callers and the slower the commit,
// the larger the batches, so that the fixed cost of a commit (round trip,
// fsync) is paid once for many.
//
// Right after a commit, a batch waits for lingerPolicy, for no longer than a
// millisecond, where that has been worth it: lingerPolicy says when. What comes to a
// Group that has been idle for a millisecond is committed at once.
//
// Two batches exist in all, one gathering and one with the committer, so
// memory stays below twice the limit plus one Add.
type Group[B any] struct {
	maxRows, maxBytes int
	linger            time.Duration
	admit             func(ctx context.Context)
	dismiss           func()
	idle              time.Duration // after which Next returns; 0 if it waits
	timer             *time.Timer   // of that
	company           lingerPolicy  // Run's alone
	gathered          chan struct{} // one slot: the open batch is not empty
	enough            chan struct{} // one slot: the open batch need not wait for more

	mu          sync.Mutex
	open        *B
	spare       *B
	adds        int           // to open
	want        int           // adds from which on nobody waits: those to the batch before
	half        time.Time     // of a wait that is waited out however many have added; else zero
	late        int           // adds since then
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

// Admit has each batch gather until admit returns, which waits for what the commit
// needs, such as a connection; dismiss gives that back if all that had gathered was taken
// out meanwhile. Call it before Run. It returns the Group.
func (g *Group[B]) Admit(admit func(ctx context.Context), dismiss func()) *Group[B] {
	g.admit, g.dismiss = admit, dismiss
	return g
}

// ReturnIdle has Next return also when nothing has gathered for d. Call it before Next. It
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

// AddIf is Add with a fill that may refuse: it returns false if it has added nothing,
// and so does AddIf. It also does so, and does not call fill, if it has to wait when
// giveUp is closed.
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

// Do calls do with the open batch, under the Group's lock. It returns how many rows and
// bytes it has taken out of the batch.
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

// Wake has Next return soon, also if nothing gathers.
func (g *Group[B]) Wake() { Signal(g.gathered) }

// Run hands one batch after the other to commit, which empties it before it
// returns, until ctx ends; then it commits what is still open and returns. The
// caller ends ctx after the last Add. commit is given work and not ctx: what
// was accepted is still to be written.
func (g *Group[B]) Run(ctx, work context.Context, commit func(context.Context, *B)) {
	for g.Next(ctx, work, commit) {
	}
}

// Next is one turn of Run, for a caller that has something else to do in between: it
// waits until something gathers, and commits that. It returns false when ctx has ended
// and what was open is committed. There may be turns with nothing to commit.
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
	if g.empty() { // it was told of what the batch before took along
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
		g.company.committed(began, time.Now())
	} else if g.dismiss != nil {
		g.dismiss()
	}
	return true
}

// idleTimer returns a channel that tells when Next has waited for long enough, or nil.
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

// wait waits for those with whom the batch is to share its commit.
func (g *Group[B]) wait(ctx context.Context) {
	if g.linger > 0 {
		g.waitFor(ctx, g.linger)
		return
	}
	switch g.company.next(time.Now()) {
	case forCallers:
		g.waitForCallers(ctx)
	case forStrangers:
		g.waitForStrangers(ctx)
	}
}

// waitForCallers waits for as many as the batch before had.
func (g *Group[B]) waitForCallers(ctx context.Context) {
	if g.ready() || !g.company.tries() {
		return
	}
	began, before := time.Now(), g.count()
	ready := g.waitFor(ctx, patience)
	g.company.waited(ready, time.Since(began), before, g.count())
}

// waitForStrangers waits the whole time, unless the batch is large before.
func (g *Group[B]) waitForStrangers(ctx context.Context) {
	g.mu.Lock()
	g.half, g.late = time.Now().Add(gathering/2), 0
	g.mu.Unlock()
	full := g.waitFor(ctx, gathering)
	g.mu.Lock()
	late := g.late
	g.half = time.Time{}
	g.mu.Unlock()
	if !full {
		g.company.cameLate(late)
	}
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
// keep coming. A closed loop of 100 callers gains 5 % (docs/explanation/strategies.md): the
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
	return g.adds >= g.want && g.half.IsZero() || g.bytes >= smallBatch || g.full()
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
