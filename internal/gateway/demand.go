package gateway

import (
	"sync"
	"time"

	"github.com/tidewire/tidewire/internal/engine"
)

// demand is how many messages the clients of a pull consumer ask for. It sets the credits
// of the pull consumer's source: at once if they ask for more, and after a rest if for less.
type demand struct {
	leases *leases

	mu      sync.Mutex
	source  engine.Consumption // nil: there is none, or none any more
	wanted  int                // by those that wait
	credits int
	rest    *time.Timer // after which the credits are what they should be; nil: they are
}

// of sets whose credits they are.
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

// add has n more messages asked for, or fewer if n is negative.
func (d *demand) add(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.wanted += n
	d.set()
}

// set raises the credits to what they should be, or sees to it that they are
// lowered. Settled deliveries lower them too, so they are looked at again while they
// are more than is waited for.
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

// need is what there should be credits for: what is out and what is waited for,
// or nothing if nobody waits.
func (d *demand) need() int {
	if d.wanted == 0 {
		return 0
	}
	out, _ := d.leases.count(time.Now())
	return out + d.wanted
}

// lower sets the credits to what they should be.
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
