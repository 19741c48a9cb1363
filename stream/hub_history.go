package stream

import (
	"context"
	"errors"
)

// epoch is what a feed knows about the current history. Each new history (after a failover) begins a new
// epoch of the feed: knowledge from before may be about messages that are lost.
type epoch struct {
	history int64   // the base of the history, or unknownHistory
	number  uint64  // counts the epochs, from 1
	ghost   int64   // the highest position known before this epoch, until it is checked whether it was lost; else 0
	older   []int64 // the same for earlier histories
}

const unknownHistory = -1

// errPast: a former primary answered the read. That is temporary.
var errPast = errors.New("stream: read from a former primary")

// isPast reports whether a history, in which a read was made, is over.
func (f *feed) isPast(history int64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return history < f.epoch.history
}

// enter notes the current history.
func (f *feed) enter(history int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.enterLocked(history)
}

func (f *feed) enterLocked(history int64) {
	e := &f.epoch
	if history <= e.history {
		return
	}
	if e.history != unknownHistory || history > 0 && f.told > 0 { // what came before the history was known may be of an earlier one
		f.forgetLocked()
	}
	e.history = history
}

// foundLost notes that the messages after last are lost, up to position had, which a subscription has
// delivered. That begins a new epoch even before the new history is known, unless the feed has entered that
// history already. A position that only a client has named does not begin an epoch.
func (f *feed) foundLost(had, last int64) {
	f.mu.Lock()
	entered := f.epoch.history != unknownHistory && had <= f.epoch.history
	ghost := f.epoch.ghost
	if !entered {
		ghost = max(ghost, f.told)
	}
	if ghost > last {
		if !entered {
			f.forgetLocked()
		}
		f.epoch.ghost = 0
	}
	f.mu.Unlock()
	if ghost > last {
		f.report(f.stream, last, ghost)
	}
}

func (f *feed) forgetLocked() {
	if f.told > f.epoch.ghost {
		if f.epoch.ghost > 0 {
			f.epoch.older = append(f.epoch.older, f.epoch.ghost)
		}
		f.epoch.ghost = f.told
	}
	f.epoch.number++
	f.tail = tail{limit: f.tail.limit}
	f.dropEarly()
	f.told, f.settled, f.checked.after = 0, 0, 0
	f.hintLocked()
}

// vouches reports whether the current history is known to have reached the position, so that no read has
// to check whether it was lost. The caller holds mu.
func (f *feed) vouches(after int64) bool {
	return after == 0 || f.epoch.history != unknownHistory && after >= f.epoch.history && after <= f.told
}

// takeGhosts returns the highest positions that were known in earlier histories, and clears them.
func (f *feed) takeGhosts() (positions []int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if positions = f.epoch.older; f.epoch.ghost > 0 {
		positions = append(positions, f.epoch.ghost)
	}
	f.epoch.ghost, f.epoch.older = 0, nil
	return positions
}

// enter tells the feeds the current history, and reports the messages that were lost with the one
// before.
func (h *Hub) enter(ctx context.Context, history int64, feeds []*feed, joined bool) {
	before := h.history
	h.mu.Lock()
	h.history = max(before, history)
	h.mu.Unlock()
	if history > before || joined {
		for _, f := range feeds {
			f.enter(h.history)
		}
	}
	if history > before {
		h.growth = growth{}
		if before != unknownHistory {
			h.cfg.Log.Warn("failover: positions continue after the base of a new history", "base", history)
		}
		h.losses.ghosts(history)
		for _, f := range feeds {
			h.losses.owe(f.stream, f.takeGhosts()...)
		}
	}
	if !h.losses.owes() {
		return
	}
	if err := h.reportLost(ctx); err != nil {
		h.cfg.Log.Warn("search for messages lost in the failover failed, trying again with the next poll", "error", err)
	}
}
