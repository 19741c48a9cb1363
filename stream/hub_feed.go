package stream

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidewire/tidewire/internal/pg"
)

// readTimeout bounds one read: a connection to a dead host would otherwise block
// all readers of the stream.
const readTimeout = 30 * time.Second

// feed is one stream that a Hub follows, for all its subscriptions and watchers. It
// has no goroutine. One subscription that has reached the end of the tail becomes
// the leader and reads the next page for all; the others wait for it
// (leader/follower, like singleflight).
type feed struct {
	stream *Stream // reads through the Hub's pool
	cfg    *HubConfig
	report func(s *Stream, last, ghost int64) // reports lost positions

	// Guarded by the Hub.
	users       int // subscriptions and watchers
	subscribers int // subscriptions
	followers   int
	unlisten    func()

	mu       sync.Mutex // guards the fields below
	tail     tail
	err      error         // ErrNotFound; permanent
	changed  chan struct{} // closed, and replaced by a new channel, when waiting subscriptions have to look again
	watchers map[chan struct{}]struct{}

	// hints counts how often the stream may have grown. A read that began at one
	// count and reached the end need not be repeated at the same count.
	hints   uint64
	leading bool // a subscription reads after tail.to
	checked struct {
		hints uint64
		after int64 // nothing came after it
	}

	// Used by the poll: told is the highest committed position that is known;
	// settled is the value of the position sequence when the committed position had
	// reached it.
	told, settled int64

	epoch epoch
	early earlyPages
	holes *atomic.Uint64 // of the Hub

	followed    int           // bytes of the tail that are counted in allFollowed
	allFollowed *atomic.Int64 // of the Hub
}

// newFeed returns the feed of a stream in a history, or unknownHistory.
func newFeed(s *Stream, cfg *HubConfig, history int64, report func(s *Stream, last, ghost int64)) *feed {
	return &feed{
		stream: s, cfg: cfg, report: report, tail: tail{limit: cfg.TailBytes},
		changed: make(chan struct{}), watchers: make(map[chan struct{}]struct{}),
		holes: new(atomic.Uint64), allFollowed: new(atomic.Int64),
		hints: 1, // nothing has been checked at this count
		epoch: epoch{history: history, number: 1},
	}
}

// view is the result of look: messages, an error, or a channel to wait for. Without
// all of these the subscription has to read from PostgreSQL: as the leader, after
// the tail, if leads is set, and otherwise for itself alone.
type view struct {
	page  []Message
	err   error
	wait  <-chan struct{}
	leads bool
	from  int64  // start of the tail, if the tail begins after the subscription's position; else 0
	epoch uint64 // epoch in which the position is sound, if there is no error
}

// look returns what is known after a position that was sound (not lost by a failover) in
// the given epoch.
func (f *feed) look(after int64, epoch uint64) view {
	f.mu.Lock()
	defer f.mu.Unlock()
	v := view{epoch: f.epoch.number}
	sound := f.isSound(after, epoch)
	switch {
	case f.err != nil:
		return view{err: f.err}
	case !sound && (f.leading || after < f.tail.to): // a read finds out
		return v
	case after < f.tail.from:
		v.from = f.tail.from
		return v
	case after < f.tail.to:
		v.page = f.tail.after(after, f.cfg.PageMessages, f.cfg.PageBytes)
		return v
	case f.waits(after, sound):
		v.wait = f.changed
		return v
	}
	f.leading = true
	v.leads = true
	return v
}

// lead reads after position after, for all subscriptions of the stream, and retries
// until PostgreSQL has answered. The leader stays leader while PostgreSQL is
// unavailable, so that only one subscription retries.
func (f *feed) lead(ctx context.Context, after int64) ([]Message, error) {
	var hints uint64
	p, more, err := f.read(ctx, after, f.cfg.PageMessages, func() { hints = f.hintCount() })
	f.mu.Lock()
	defer f.mu.Unlock()
	f.leading = false
	f.wake()
	if err != nil {
		return nil, err
	}
	f.enterLocked(p.history)
	last := after
	if len(p.messages) > 0 {
		last = p.last()
		f.tail.extend(f.tail.notIn(after, p))
		f.told = max(f.told, last)
		f.tell() // Followers, too
	}
	if !more && (f.checked.hints != hints || last < f.checked.after) {
		f.checked.hints, f.checked.after = hints, last
	}
	f.joinEarly()
	return p.messages, nil
}

// read reads the page after position after, at most most messages, and retries while PostgreSQL is
// unavailable. It calls begin before each attempt. more is false if this page contains the last
// message that was committed when the last attempt began.
func (f *feed) read(ctx context.Context, after int64, most int, begin func()) (p tailPage, more bool, err error) {
	for failed := 0; ; failed++ {
		begin()
		p, more, err = f.readOnce(ctx, after, min(most, f.cfg.PageMessages))
		if err == nil && f.isPast(p.history) {
			err = errPast
		}
		if err == nil {
			return p, more, nil
		}
		if (err == errPast || pg.Retryable(err)) && pg.Backoff(ctx, failed) == nil {
			continue
		}
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return tailPage{}, false, err
	}
}

func (f *feed) readOnce(ctx context.Context, after int64, most int) (tailPage, bool, error) {
	if p, ok := f.stream.standbyPage(ctx, after, most, f.cfg.PageBytes); ok && !f.isPast(p.history) {
		return p, true, nil
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	return f.stream.page(ctx, after, most, f.cfg.PageBytes, f.stream.continues)
}

func (f *feed) hintCount() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.hints
}

// grown adds a committed page. A page directly after the tail need not be read from
// PostgreSQL. If also no hint has come since the feed was last at the end of the stream,
// the feed is then at the end again, with this page.
func (f *feed) grown(p tailPage) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.err != nil || !p.fits(f.cfg) || p.first() <= f.epoch.history: // of a history that is over
		f.hintLocked()
	case p.first()-1 <= f.end():
		f.join(p)
		f.joinEarly()
	case !f.keepEarly(p):
		f.dropEarly()
		f.holes.Add(1)
		f.hintLocked()
	}
}

// end is the position up to which the feed has the stream, as far as it needs it.
func (f *feed) end() int64 {
	if len(f.tail.pages) > 0 {
		return f.tail.to
	}
	return max(f.tail.to, f.checked.after)
}

// join adds a page that begins no later than directly after the end.
func (f *feed) join(p tailPage) {
	before := f.end()
	if p.last() <= before {
		return
	}
	f.tail.extend(before, p.from(before+1))
	f.told = max(f.told, f.tail.to)
	if f.checked.hints != f.hints || f.checked.after != before {
		f.hintLocked()
		return
	}
	f.checked.after = f.tail.to
	f.tell()
}

// grownAlone is grown for a feed without subscriptions, for its Followers: it keeps the
// messages that they have not taken yet, as far as the bounds on their memory allow, and extends
// them with pages that follow directly.
func (f *feed) grownAlone(p tailPage) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil || p.first() <= f.tail.to || p.first() <= f.epoch.history { // of a history that is over
		f.hintLocked()
		return
	}
	before := p.first() - 1
	joined := before == f.tail.to
	f.tail.extend(before, p)
	if f.shrinkFollowed() || !joined {
		f.hints++
	}
	f.told = max(f.told, p.last())
	f.tell()
}

// shrinkFollowed holds no more messages than the bounds for Followers allow, and reports whether it has evicted any. The
// caller holds mu.
func (f *feed) shrinkFollowed() bool {
	most := followerBytes
	if f.countFollowed() > allFollowerBytes {
		most = followerBytesMin
	}
	evicted := f.tail.shrink(most)
	f.countFollowed()
	return evicted
}

// unsubscribed is called when the last subscription has ended: what it has left is for Followers alone.
func (f *feed) unsubscribed() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.shrinkFollowed() {
		f.hintLocked()
	}
}

// forsake ends the count of the feed: the Hub has forgotten it, and a commit that still has it
// changes the count no more.
func (f *feed) forsake() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.allFollowed.Add(-int64(f.followed))
	f.followed, f.allFollowed = 0, new(atomic.Int64)
}

// countFollowed updates the bytes that all such feeds hold, and returns them. The caller holds mu.
func (f *feed) countFollowed() int64 {
	change := int64(f.tail.bytes - f.followed)
	f.followed = f.tail.bytes
	return f.allFollowed.Add(change)
}

// hintLocked notes that the stream may have grown. The caller holds mu.
func (f *feed) hintLocked() {
	f.hints++
	f.tell()
}

// wake wakes all waiting subscriptions. The caller holds mu.
func (f *feed) wake() {
	close(f.changed)
	f.changed = make(chan struct{})
}

// tell wakes subscriptions and watchers. The caller holds mu.
func (f *feed) tell() {
	f.wake()
	for w := range f.watchers {
		select {
		case w <- struct{}{}:
		default:
		}
	}
}

// polled processes the result of a poll: the value of the position sequence and the
// last committed position.
func (f *feed) polled(reserved, head int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if head >= reserved {
		f.settled = reserved
	}
	if head > f.told {
		f.told = head
		f.hintLocked()
	}
}

// fail ends the feed: the stream is gone.
func (f *feed) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil {
		f.err = err
		f.tail = tail{}
		f.dropEarly()
		f.hintLocked()
	}
}

// settledAt is the value up to which the position sequence means nothing new for the
// feed: all known positions are committed, so if the sequence is not higher, there are
// no others.
func (f *feed) settledAt() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return max(f.settled, f.told)
}

func (f *feed) watch() chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	w := make(chan struct{}, 1)
	f.watchers[w] = struct{}{}
	return w
}

func (f *feed) unwatch(w chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.watchers, w)
}
