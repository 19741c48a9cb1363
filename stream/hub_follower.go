package stream

import "sync"

// followerBytes is the memory, for each stream that has Followers and no subscriptions, for
// messages that they have not asked for.
const followerBytes = 64 << 10

// Follower follows a stream for a reader that reads when it likes, and not all: it has
// what the process's own Appenders with the same Hub stored last, and tells when PostgreSQL is to
// be asked. Safe for concurrent use; Recent is one reader's.
type Follower struct {
	hub     *Hub
	feed    *feed
	changed chan struct{}
	stop    sync.Once
	asked   uint64 // hints of the feed when PostgreSQL was last said to be asked
}

// Follow returns a Follower of the stream, which must be closed.
func (h *Hub) Follow(s *Stream) *Follower {
	f := h.follow(s, 0, 1)
	return &Follower{hub: h, feed: f, changed: f.watch()}
}

// Changed is a channel of one slot that is signalled whenever Recent may return something
// else, or the stream may be gone. Signals without a reason occur.
func (f *Follower) Changed() <-chan struct{} { return f.changed }

// Recent returns messages after that position, without gap, at most so many, but at least one; or none
// if they are not at hand: then ask says whether there may be some, so that the stream is to be
// read. It forgets those up to that position, if nobody else follows the stream. The messages
// must not be changed.
func (f *Follower) Recent(after int64, limit int) (page []Message, ask bool) {
	shared := !f.hub.alone(f.feed)
	f.feed.mu.Lock()
	defer f.feed.mu.Unlock()
	tail := &f.feed.tail
	if !shared {
		tail.forget(after)
	}
	if after >= tail.from && after < tail.to {
		page = tail.after(after, f.feed.cfg.PageMessages, f.feed.cfg.PageBytes)
		return page[:min(max(limit, 1), len(page))], false
	}
	return nil, after < tail.from || f.hintedLocked()
}

// End is the position up to which messages have been at hand, or 0.
func (f *Follower) End() int64 {
	f.feed.mu.Lock()
	defer f.feed.mu.Unlock()
	return f.feed.tail.to
}

// Hinted reports whether something may have been stored, since Recent or Hinted last said so
// or the Follower was made, that is not at hand.
func (f *Follower) Hinted() bool {
	f.feed.mu.Lock()
	defer f.feed.mu.Unlock()
	return f.hintedLocked()
}

func (f *Follower) hintedLocked() bool {
	hinted := f.asked != f.feed.hints
	f.asked = f.feed.hints
	return hinted
}

// Close ends what the Follower is told. It may be called more than once.
func (f *Follower) Close() {
	f.stop.Do(func() {
		f.feed.unwatch(f.changed)
		f.hub.leave(f.feed, 0, 1)
	})
}
