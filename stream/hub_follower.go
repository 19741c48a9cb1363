package stream

import "sync"

// Bounds in bytes on the memory for messages that Followers have not taken yet, of streams that
// have Followers and no subscriptions. One commit of a busy queue is a few hundred KiB, and what
// is evicted has to be read from PostgreSQL.
const (
	followerBytes    = 1 << 20  // of a stream, while all together have less than allFollowerBytes
	followerBytesMin = 64 << 10 // of a stream, in any case
	allFollowerBytes = 16 << 20
)

// Follower follows a stream for a reader that reads at its own times, and not every message: it
// keeps the last messages that the process's own Appenders with the same Hub have stored, and
// tells when the stream has to be read from PostgreSQL. Safe for concurrent use, but only one
// reader may call Recent.
type Follower struct {
	hub     *Hub
	feed    *feed
	changed chan struct{}
	stop    sync.Once
	asked   uint64 // hints of the feed when the reader was last told to read from PostgreSQL
}

// Follow returns a Follower of the stream, which must be closed.
func (h *Hub) Follow(s *Stream) *Follower {
	f := h.follow(s, 0, 1)
	return &Follower{hub: h, feed: f, changed: f.watch()}
}

// Changed is a channel of one slot that is signalled whenever Recent may return something
// else, or the stream may be gone. Spurious signals occur.
func (f *Follower) Changed() <-chan struct{} { return f.changed }

// Recent returns the messages after that position that are in memory, without gap, from 1 to limit
// messages. If the next message is not in memory it returns none, and ask reports whether there may be
// some, so that the reader has to read the stream. It forgets the messages up to that position, if the
// stream has no other follower. The messages must not be changed.
func (f *Follower) Recent(after int64, limit int) (page []Message, ask bool) {
	shared := !f.hub.alone(f.feed)
	f.feed.mu.Lock()
	defer f.feed.mu.Unlock()
	tail := &f.feed.tail
	if !shared {
		tail.forget(after)
		f.feed.countFollowed()
	}
	if after >= tail.from && after < tail.to {
		page = tail.after(after, f.feed.cfg.PageMessages, f.feed.cfg.PageBytes)
		return page[:min(max(limit, 1), len(page))], false
	}
	return nil, after < tail.from || f.hintedLocked()
}

// End is the last position that has been in memory, or 0.
func (f *Follower) End() int64 {
	f.feed.mu.Lock()
	defer f.feed.mu.Unlock()
	return f.feed.tail.to
}

// Hinted reports whether messages may have been stored that are not in memory, since Recent
// or Hinted last reported this or the Follower was created.
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

// Close ends the Follower and its signals. It may be called more than once.
func (f *Follower) Close() {
	f.stop.Do(func() {
		f.feed.unwatch(f.changed)
		f.hub.leave(f.feed, 0, 1)
	})
}
