package postgres

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidewire/tidewire/internal/engine"
)

// progress counts what one writer has accepted and answered. Its begin and end are
// two additions, for each request and not for each message.
type progress struct {
	begun, ended atomic.Int64

	// Of stallWatch alone.
	last  int64
	since time.Time

	// Of closeIdle alone.
	seen    int64
	quietAt time.Time
}

func (p *progress) begin() { p.begun.Add(1) }
func (p *progress) end()   { p.ended.Add(1) }

// waits returns for how long something has been under way of which nothing was
// answered; 0 if nothing is.
func (p *progress) waits(now time.Time) time.Duration {
	ended := p.ended.Load()
	if p.begun.Load() <= ended {
		p.since = time.Time{}
		return 0
	}
	if p.since.IsZero() || ended != p.last {
		p.last, p.since = ended, now
	}
	return now.Sub(p.since)
}

// idle returns for how long nothing was begun and everything was answered, as far as
// it was asked before.
func (p *progress) idle(now time.Time) time.Duration {
	ended, begun := p.ended.Load(), p.begun.Load()
	if begun != ended || begun != p.seen || p.quietAt.IsZero() {
		p.seen, p.quietAt = begun, now
	}
	return now.Sub(p.quietAt)
}

const (
	// watchEvery is how often writers are looked at.
	watchEvery = time.Second
	// stallAfter is how long a writer may take for a batch: some seconds.
	stallAfter = 5 * time.Second
)

// stallWatch looks whether writers get on. Not each that waits is the server's
// fault: an application may have locked its table. More than half of those with
// something to do are.
type stallWatch struct {
	all func(yield func(*progress)) // the writers there are

	mu  sync.Mutex
	err error
}

// run looks until done is closed.
func (w *stallWatch) run(done <-chan struct{}) {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		select {
		case now := <-tick.C:
			w.look(now)
		case <-done:
			return
		}
	}
}

func (w *stallWatch) look(now time.Time) {
	busy, stalled, longest := 0, 0, time.Duration(0)
	w.all(func(p *progress) {
		waits := p.waits(now)
		if waits > 0 || !p.since.IsZero() {
			busy++
		}
		if waits >= stallAfter {
			stalled++
			longest = max(longest, waits)
		}
	})
	var err error
	if 2*stalled > busy {
		err = &engine.NotReadyError{Reason: fmt.Sprintf("%d of %d writers at work have stored nothing for %v",
			stalled, busy, longest.Truncate(time.Second))}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err = err
}

// stalled returns what the last look found.
func (w *stallWatch) stalled() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}
