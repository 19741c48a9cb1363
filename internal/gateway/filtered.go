package gateway

import (
	"context"

	"github.com/tidewire/tidewire/internal/budget"
	"github.com/tidewire/tidewire/internal/engine"
)

// unsent are messages that were read and not sent yet: with a filter, more may be read than there are credits for.
type unsent struct {
	memory   *budget.Holder
	messages []engine.Message
	held     int64 // bytes of memory
	// read is the position up to which the server has read, with what the filter has dropped.
	read int64
}

// fill takes what a filter leaves of messages that were read. There has to be nothing unsent.
func (u *unsent) fill(read []engine.Message, f *filter) {
	u.read = read[len(read)-1].Position
	u.messages = f.of(read)
	for i := range u.messages {
		u.held += int64(messageBytes(&u.messages[i]))
	}
	u.memory.Take(budget.Page, u.held)
}

// take returns the next messages, at most most.
func (u *unsent) take(most int) []engine.Message {
	next := u.messages[:min(most, len(u.messages))]
	if u.messages = u.messages[len(next):]; len(u.messages) == 0 {
		u.drop()
	}
	return next
}

// drop forgets what is left.
func (u *unsent) drop() {
	u.memory.Release(budget.Page, u.held)
	u.messages, u.held = nil, 0
}

// passed returns the position up to which the filter has dropped everything after the messages, which were taken last;
// 0 if there is nothing to tell.
func (u *unsent) passed(messages []engine.Message) int64 {
	if len(u.messages) > 0 || len(messages) > 0 && messages[len(messages)-1].Position == u.read {
		return 0
	}
	return u.read
}

// filteredFeed is the feed of a stream with a filter. It reads whole pages, and holds what is left of one until there are
// credits for it.
type filteredFeed struct {
	streamFeed
	filter *filter
	unsent unsent
}

func (f *filteredFeed) next(ctx context.Context, most int) (page, error) {
	if len(f.unsent.messages) == 0 {
		messages, err := f.Next(ctx, maxBatch)
		if err != nil {
			return page{}, err
		}
		f.unsent.fill(messages, f.filter)
	}
	messages := f.unsent.take(most)
	p := f.page(messages)
	p.passed = f.unsent.passed(messages)
	return p, nil
}

// Close closes the subscription.
func (f *filteredFeed) Close() {
	f.unsent.drop()
	f.streamFeed.Close()
}
