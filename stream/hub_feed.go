package stream

import (
	"context"
	"sync"
	"time"

	"github.com/tidewire/tidewire/internal/pg"
)

// readTimeout bounds one read: a connection to a host that is gone would
// otherwise stop all that follow the stream.
const readTimeout = 30 * time.Second

// feed is one stream that a Hub follows, for all its subscriptions and
// watchers. Nobody runs for it: the subscription that is at the end of what
// was read reads on, for all, and the others wait for it.
type feed struct {
	stream *Stream // reads through the Hub's pool
	cfg    *HubConfig
	report func(s *Stream, last, ghost int64) // is told which positions are lost

	// Guarded by the Hub.
	users       int // subscriptions and watchers
	subscribers int // subscriptions
	followers   int

	mu       sync.Mutex // guards the fields below
	tail     tail
	err      error         // ErrNotFound, for good
	changed  chan struct{} // closed, and made anew, when a waiting subscription has to look again
	watchers map[chan struct{}]struct{}

	// hints counts how often the stream may have grown. A read that began at
	// one count and came to the end need not be repeated at the same count.
	hints   uint64
	leading bool // a subscription reads after tail.to
	checked struct {
		hints uint64
		after int64 // nothing came after it
	}

	// The poll knows these: the committed position that it told of, and where
	// the sequence stood when that position had reached it.
	told, settled int64

	epoch epoch
}

func newFeed(s *Stream, cfg *HubConfig, report func(s *Stream, last, ghost int64)) *feed {
	return &feed{
		stream: s, cfg: cfg, report: report, tail: tail{limit: cfg.TailBytes},
		changed: make(chan struct{}), watchers: make(map[chan struct{}]struct{}),
		hints: 1, // nothing has been checked at this count
		epoch: epoch{history: unknownHistory, number: 1},
	}
}

// view is what a subscription finds in its feed: messages, an error, something
// to wait for, or else that it has to read for itself. It then reads after
// the tail, as the only one, if leads is set.
type view struct {
	page  []Message
	err   error
	wait  <-chan struct{}
	leads bool
	from  int64  // of the tail, if it begins after the subscription; else 0
	epoch uint64 // in which the position is sound, if there is no error
}

// look finds what there is after a position that was sound in that epoch.
func (f *feed) look(after int64, epoch uint64) view {
	f.mu.Lock()
	defer f.mu.Unlock()
	v := view{epoch: f.epoch.number}
	sound := epoch == f.epoch.number || f.vouches(after)
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
	case sound && (f.leading || f.checked.hints == f.hints && after >= f.checked.after):
		v.wait = f.changed
		return v
	}
	f.leading = true
	v.leads = true
	return v
}

// lead reads after position after, for all who follow the stream, until it
// can tell whether there is something. The leader keeps the lead while
// PostgreSQL is away, so that only one asks for it.
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
	return p.messages, nil
}

// read reads the page after position after, and tries again while PostgreSQL
// is away: at most most messages. Each attempt begins with a call of begin. more is false if what was
// committed when the last attempt began ends with this page.
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
	return f.stream.page(ctx, after, most, f.cfg.PageBytes)
}

func (f *feed) hintCount() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.hints
}

// grown takes a page that was committed. If it comes directly after what the feed has, it
// need not be read; and if besides nobody has said that there is more since the feed was
// at the end, it is now, at the end of the page.
func (f *feed) grown(p tailPage) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil || len(p.messages) == 0 || p.bytes > f.cfg.PageBytes || len(p.messages) > f.cfg.PageMessages {
		f.hintLocked()
		return
	}
	before := p.messages[0].Position - 1
	if before != f.tail.to && (len(f.tail.pages) > 0 || before != f.checked.after || before < f.tail.to) {
		f.hintLocked()
		return
	}
	f.tail.extend(before, p)
	f.told = max(f.told, f.tail.to)
	if f.checked.hints != f.hints || f.checked.after != before {
		f.hintLocked()
		return
	}
	f.checked.after = f.tail.to
	f.tell()
}

// grownAlone is grown of a feed without subscriptions, for its Followers: what they have not
// asked for is kept, up to a bound, and they need not read what comes directly after it.
func (f *feed) grownAlone(p tailPage) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil || len(p.messages) == 0 || p.messages[0].Position <= f.tail.to {
		f.hintLocked()
		return
	}
	before := p.messages[0].Position - 1
	joined := before == f.tail.to
	f.tail.extend(before, p)
	if f.tail.shrink(followerBytes) || !joined {
		f.hints++
	}
	f.told = max(f.told, p.last())
	f.tell()
}

// hint says that the stream may have grown.
func (f *feed) hint() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hintLocked()
}

func (f *feed) hintLocked() {
	f.hints++
	f.tell()
}

// tell has subscriptions and watchers look. The caller holds mu.
func (f *feed) tell() {
	f.wake()
	for w := range f.watchers {
		select {
		case w <- struct{}{}:
		default:
		}
	}
}

// polled takes what the poll found: where the sequence stands and the last
// committed position.
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
		f.hintLocked()
	}
}

// wake has all waiting subscriptions look again. The caller holds mu.
func (f *feed) wake() {
	close(f.changed)
	f.changed = make(chan struct{})
}

// settledAt is where the sequence may stand without anything new for the feed: what it
// was told of is committed, so there is nothing more if the sequence is there as well.
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
