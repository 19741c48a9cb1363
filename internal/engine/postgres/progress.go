package postgres

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidewire/tidewire/internal/engine"
)

// progress counts the requests that one writer has accepted and answered. It costs
// two additions per request, and nothing per message.
type progress struct {
	begun, ended atomic.Int64

	// Used only by stallWatch.
	last  int64
	since time.Time

	// Used only by closeIdle.
	seen    int64
	quietAt time.Time
}

func (p *progress) begin() { p.begun.Add(1) }
func (p *progress) end()   { p.ended.Add(1) }

// waits returns how long requests have been waiting since the last answer; 0 if
// none waits.
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

// idle returns how long no request has begun or waited, counted from the call that
// first found that.
func (p *progress) idle(now time.Time) time.Duration {
	ended, begun := p.ended.Load(), p.begun.Load()
	if begun != ended || begun != p.seen || p.quietAt.IsZero() {
		p.seen, p.quietAt = begun, now
	}
	return now.Sub(p.quietAt)
}

const (
	// watchEvery is how often writers are checked.
	watchEvery = time.Second
	// stallAfter is how long a writer may take for a batch. It is longer than the lock timeouts of the packages (10 s), after which they
	// answer if a session of others holds a lock: that is no reason to take the server out of service.
	stallAfter = 15 * time.Second
)

// stallWatch checks whether writers make progress. A single stalled writer need
// not be the server's fault: an application may have locked its table. The
// server is not ready if more than half of the busy writers are stalled.
type stallWatch struct {
	all func(yield func(*progress)) // all writers

	mu  sync.Mutex
	err error
}

// run checks until done is closed.
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

// stalled returns the result of the last check.
func (w *stallWatch) stalled() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}
