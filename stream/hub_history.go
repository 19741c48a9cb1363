package stream

import (
	"context"
	"errors"
)

// epoch is what a feed knows of the history that goes on. Each new history begins a new epoch of the feed:
// whatever was learnt before may be of messages that are lost.
type epoch struct {
	history int64   // its base, or unknownHistory
	number  uint64  // counts the epochs, from 1
	ghost   int64   // the highest position known before, until somebody has looked whether it was lost; else 0
	older   []int64 // the same of histories before that one
}

const unknownHistory = -1

// errPast: a server answered that was primary before another one was. It will not be for long.
var errPast = errors.New("stream: read from a former primary")

// isPast reports whether a history is over that a read was of.
func (f *feed) isPast(history int64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return history < f.epoch.history
}

// enter takes in which history goes on.
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
	if e.history != unknownHistory {
		f.forgetLocked()
	}
	e.history = history
}

// foundLost is told that messages after last are lost, up to one at had that a subscription has had. That begins a new epoch
// before it is known in which history, unless the feed has entered that already. A position that only a client names
// is no reason.
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
	f.told, f.settled, f.checked.after = 0, 0, 0
	f.hintLocked()
}

// vouches reports whether the position is one that the history that goes on is known to have reached: no
// read has to find out whether what was there is lost. The caller holds mu.
func (f *feed) vouches(after int64) bool {
	return after == 0 || f.epoch.history != unknownHistory && after >= f.epoch.history && after <= f.told
}

// takeGhosts returns the highest positions that were known in earlier histories, once.
func (f *feed) takeGhosts() (positions []int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if positions = f.epoch.older; f.epoch.ghost > 0 {
		positions = append(positions, f.epoch.ghost)
	}
	f.epoch.ghost, f.epoch.older = 0, nil
	return positions
}

// enter has the feeds take in which history goes on, and reports what the one before has lost.
func (h *Hub) enter(ctx context.Context, history int64, feeds []*feed, joined bool) {
	before := h.history
	h.history = max(before, history)
	if history > before || joined {
		for _, f := range feeds {
			f.enter(h.history)
		}
	}
	if history > before {
		h.growth = growth{}
		if before != unknownHistory {
			h.cfg.Log.Warn("a failover: positions go on after the base of a new history", "base", history)
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
		h.cfg.Log.Warn("not looked yet for messages that the failover has lost; tried again", "error", err)
	}
}
