package stream

import "time"

const (
	// wakeCost is about how long it takes to wake one waiting subscription and write to its socket; its reader takes as long
	// again. maxWakeRest bounds the pause that follows from it, and below minWakeRest there is none.
	wakeCost    = 8 * time.Microsecond
	minWakeRest = 500 * time.Microsecond
	maxWakeRest = 10 * time.Millisecond
)

// waking says when the subscriptions that wait for a feed were woken. A feed with many of them wakes them less often, so that each gets
// several messages at a time: a wake and a write for each message and subscription would be most of the work. So they get messages in rounds,
// as the members of a room do. A subscription that lags takes what it has missed at once.
type waking struct {
	waiting int // subscriptions that wait now, at most
	woken   int // that were woken last
	at      time.Time
	upTo    int64       // end of the tail then
	later   *time.Timer // nil if no wake is planned
}

// rest returns how long to wait before the next wake.
func (w *waking) rest(now time.Time) time.Duration {
	rest := min(time.Duration(w.woken)*wakeCost, maxWakeRest)
	if rest < minWakeRest {
		return 0
	}
	return rest - now.Sub(w.at)
}

// inTurn reports whether a subscription that has everything up to a position gets messages before the next wake.
func (w *waking) inTurn(after int64) bool { return w.later == nil || after < w.upTo }

// wake wakes all waiting subscriptions, soon if there are many. The caller holds mu.
func (f *feed) wake() {
	if f.waking.later != nil {
		return
	}
	if rest := f.waking.rest(time.Now()); rest > 0 {
		f.waking.later = time.AfterFunc(rest, func() {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.wakeNow()
		})
		return
	}
	f.wakeNow()
}

// wakeNow wakes all waiting subscriptions. The caller holds mu.
func (f *feed) wakeNow() {
	f.waking = waking{woken: f.waking.waiting, at: time.Now(), upTo: f.tail.to}
	close(f.changed)
	f.changed = make(chan struct{})
}
