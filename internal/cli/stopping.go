package cli

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidewire/tidewire/internal/embedpg"
)

// stopping shares out the time that a stop may take among its stages, and ends it
// when the time is over, whatever hangs: a watchdog. It begins with the first
// signal, the end of --duration, or a failure.
type stopping struct {
	timeout time.Duration
	once    sync.Once
	begun   chan struct{} // closed when deadline is set
	end     time.Time
	stage   atomic.Pointer[string]
}

// Shares of the time by whose end a stage gives up. Requests that clients wait for
// come first, so that they are answered before they are cut off. The last is the
// time for a private PostgreSQL to be killed, if nothing else ends it.
const (
	shareStored  = 0.5  // what was received is stored, or answered as given up
	shareReads   = 0.6  // what was asked besides is answered
	shareHTTP    = 0.7  // HTTP requests have taken their answers
	shareEdges   = 0.8  // WebSockets are closed
	shareWriters = 0.85 // writers have ended
	sharePool    = 0.9  // connections to PostgreSQL are closed
	sharePG      = 0.95 // the private PostgreSQL ends
)

// newStopping returns a stop that begins, at the latest, when ctx ends.
func newStopping(ctx context.Context, timeout time.Duration) *stopping {
	s := &stopping{timeout: timeout, begun: make(chan struct{})}
	s.doing("starting")
	context.AfterFunc(ctx, s.begin)
	return s
}

// begin starts the clock; later calls do nothing.
func (s *stopping) begin() {
	s.once.Do(func() {
		s.end = time.Now().Add(s.timeout)
		close(s.begun)
	})
}

// doing says what is under way, for who waits in vain.
func (s *stopping) doing(stage string) { s.stage.Store(&stage) }

// until returns a context that ends when that share of the time is over. The stop
// has begun.
func (s *stopping) until(share float64) (context.Context, context.CancelFunc) {
	left := time.Duration((1 - share) * float64(s.timeout))
	return context.WithDeadline(context.Background(), s.end.Add(-left))
}

// after calls f when that share of the time is over, unless it is told before that
// there is no need. The stop has begun.
func (s *stopping) after(share float64, f func()) (needless func()) {
	ctx, cancel := s.until(share)
	stop := context.AfterFunc(ctx, f)
	return func() {
		stop()
		cancel()
	}
}

// run runs work, which ends when the stop has; past its time, run ends what the
// process owns and returns without it.
func (s *stopping) run(work func() error) error {
	done := make(chan error, 1)
	go func() { done <- work() }()
	select {
	case err := <-done:
		return err
	case <-s.begun:
	}
	overdue := time.NewTimer(time.Until(s.end))
	defer overdue.Stop()
	select {
	case err := <-done:
		return err
	case <-overdue.C:
	}
	stage := *s.stage.Load()
	if err := embedpg.EndOwned(); err != nil {
		return exit(ExitFailure, "the stop was given up after --shutdown-timeout %v while %s; and %w", s.timeout, stage, err)
	}
	return exit(ExitFailure, "the stop was given up after --shutdown-timeout %v while %s", s.timeout, stage)
}
