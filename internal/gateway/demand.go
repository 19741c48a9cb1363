package gateway

import (
	"sync"
	"time"

	"github.com/tidewire/tidewire/internal/engine"
)

// demand is how many messages the clients of a pull consumer request. It sets the credits of
// the pull consumer's source: at once when they request more, and after pullRest when they
// request fewer.
type demand struct {
	leases *leases

	mu      sync.Mutex
	source  engine.Consumption // nil if none is open
	wanted  int                // messages requested by waiting clients
	credits int
	rest    *time.Timer // lowers the credits; nil if they need not be lowered
}

// of sets the source, or none if it is nil.
func (d *demand) of(source engine.Consumption) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.source, d.credits = source, 0
	if d.rest != nil {
		d.rest.Stop()
		d.rest = nil
	}
	d.set()
}

// add adds n requested messages; n may be negative.
func (d *demand) add(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.wanted += n
	d.set()
}

// set raises the credits at once, or starts the timer that lowers them. Settled
// deliveries reduce the need too, so the timer runs while there are more credits
// than requested messages.
func (d *demand) set() {
	if d.source == nil {
		return
	}
	if need := d.need(); need > d.credits {
		d.credits = need
		d.source.SetCredits(need)
	}
	if d.credits > d.wanted && d.rest == nil {
		d.rest = time.AfterFunc(pullRest, d.lower)
	}
}

// need returns the credits needed: unsettled deliveries plus requested
// messages, or 0 if nobody waits.
func (d *demand) need() int {
	if d.wanted == 0 {
		return 0
	}
	out, _ := d.leases.count(time.Now())
	return out + d.wanted
}

// now returns the need, and whether a source is open that is not broken.
func (d *demand) now() (need int, open bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.source == nil {
		return 0, false
	}
	select {
	case <-d.source.Broken():
		return 0, false
	default:
		return d.need(), true
	}
}

// lower sets the credits to the need.
func (d *demand) lower() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.rest = nil; d.source == nil {
		return
	}
	if need := d.need(); need != d.credits {
		d.credits = need
		d.source.SetCredits(need)
	}
	d.set()
}
