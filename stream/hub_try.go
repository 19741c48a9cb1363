package stream

import "context"

// Wait waits until there may be messages, or an error, for TryNext. Its own errors are those of ctx, and
// ErrClosed. With TryNext, one goroutine can read many subscriptions and hold one page: each waits in a
// goroutine of its own, and is read when it is its turn. It must not be called at the same time as Next or
// TryNext.
func (s *Subscription) Wait(ctx context.Context) error {
	for {
		if err := s.over(ctx); err != nil {
			return err
		}
		wait := s.feed.pending(s.after.Load(), s.epoch)
		if wait == nil {
			return nil
		}
		select {
		case <-wait:
		case <-ctx.Done():
		case <-s.life.Done():
		}
	}
}

// TryNext is NextUpTo, but it returns no messages where NextUpTo would wait for some. It may read from
// PostgreSQL, and waits while that is unavailable.
func (s *Subscription) TryNext(ctx context.Context, most int) ([]Message, error) {
	if err := validLimit(most); err != nil {
		return nil, err
	}
	for {
		if err := s.over(ctx); err != nil {
			return nil, err
		}
		if s.feed.pending(s.after.Load(), s.epoch) != nil {
			return nil, nil
		}
		if page, err := s.once(ctx, most, false); err != nil || len(page) > 0 {
			return page, err
		}
	}
}

// pending returns a channel to wait for if nothing is known to come after the position, and no read would find
// out; else nil.
func (f *feed) pending(after int64, epoch uint64) <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.waits(after, f.isSound(after, epoch)) {
		return nil
	}
	return f.changed
}

// isSound reports whether a position that was sound in the given epoch still is. The caller holds mu.
func (f *feed) isSound(after int64, epoch uint64) bool {
	return epoch == f.epoch.number || f.vouches(after)
}

// waits reports whether a subscription after a position has to wait: another one is reading, or the last read
// has found nothing, and nothing has changed since. The caller holds mu.
func (f *feed) waits(after int64, sound bool) bool {
	return f.err == nil && sound && after >= f.tail.to && (f.leading || f.checked.hints == f.hints && after >= f.checked.after)
}
