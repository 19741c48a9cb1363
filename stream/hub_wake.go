package stream

import "time"

const (
	// wakeCost is about how long it takes to wake one waiting subscription and write to its socket. maxWakeRest bounds the
	// pause that follows from it, and below minWakeRest there is none.
	wakeCost    = 3 * time.Microsecond
	minWakeRest = 500 * time.Microsecond
	maxWakeRest = 5 * time.Millisecond
)

// waking says when the subscriptions that wait for a feed were woken. A feed with many of them wakes them less often, so that each gets
// several messages at a time: a wake and a write for each message and subscription would be most of the work.
type waking struct {
	waiting int // subscriptions that wait now, at most
	woken   int // that were woken last
	at      time.Time
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
	f.waking = waking{woken: f.waking.waiting, at: time.Now()}
	close(f.changed)
	f.changed = make(chan struct{})
}
