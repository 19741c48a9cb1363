package serve

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidewire/tidewire/internal/embedpg"
)

// Stop divides the time that a stop may take among its stages. It is also the watchdog that ends the stop when
// the time is over, even if something hangs. The stop begins when the context of NewStop ends, or with the
// first stage.
type Stop struct {
	timeout time.Duration
	once    sync.Once
	begun   chan struct{} // closed when deadline is set
	end     time.Time
	stage   atomic.Pointer[string]
}

// Share is a fraction of the time that a stop may take. A stage gives up at its
// end.
type Share float64

// The stages. Requests of waiting clients come first, so that they are answered
// before they are cut off. The rest of the time after the last stage is for
// killing a private PostgreSQL that does not end otherwise.
const (
	shareStored   Share = 0.5  // received messages are stored, or answered as given up
	shareReads    Share = 0.6  // all other requests are answered
	shareHTTP     Share = 0.7  // HTTP clients have received their answers
	shareEdges    Share = 0.8  // WebSockets are closed
	shareWriters  Share = 0.85 // writers have ended
	SharePool     Share = 0.9  // connections to PostgreSQL are closed
	SharePostgres Share = 0.95 // the private PostgreSQL ends
)

// NewStop returns a Stop that begins, at the latest, when ctx has ended and the time of a drain is over.
func NewStop(ctx context.Context, timeout, drain time.Duration) *Stop {
	s := &Stop{timeout: timeout, begun: make(chan struct{})}
	s.doing("starting")
	context.AfterFunc(ctx, func() { time.AfterFunc(drain, s.begin) })
	return s
}

// begin starts the stop's time; later calls do nothing.
func (s *Stop) begin() {
	s.once.Do(func() {
		s.end = time.Now().Add(s.timeout)
		close(s.begun)
	})
}

// doing sets the current stage, for the error of Run.
func (s *Stop) doing(stage string) { s.stage.Store(&stage) }

// until returns a context that ends when that share of the time is over. The stop
// must have begun.
func (s *Stop) until(share Share) (context.Context, context.CancelFunc) {
	left := time.Duration((1 - float64(share)) * float64(s.timeout))
	return context.WithDeadline(context.Background(), s.end.Add(-left))
}

// Stage begins a stage of the stop; the first one begins the stop. It returns a context that ends when that share of
// the time is over.
func (s *Stop) Stage(doing string, share Share) (context.Context, context.CancelFunc) {
	s.begin()
	s.doing(doing)
	return s.until(share)
}

// Close calls end in a stage, and does not wait for it longer. It is for connections, which pgx closes without a time
// limit: a busy one, or one that PostgreSQL does not answer, is left open until the process ends.
func (s *Stop) Close(doing string, end func()) error {
	ctx, cancel := s.Stage(doing, SharePool)
	defer cancel()
	closed := make(chan struct{})
	go func() {
		end()
		close(closed)
	}()
	select {
	case <-closed:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s: given up", doing)
	}
}

// after calls f when that share of the time is over, unless needless is called
// before. The stop must have begun.
func (s *Stop) after(share Share, f func()) (needless func()) {
	ctx, cancel := s.until(share)
	stop := context.AfterFunc(ctx, f)
	return func() {
		stop()
		cancel()
	}
}

// Run runs work, which ends when the stop is complete. If the stop's time is
// over first, Run ends a private PostgreSQL and returns without waiting for
// work.
func (s *Stop) Run(work func() error) error {
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
		return fmt.Errorf("the stop was given up after --shutdown-timeout %v while %s; and %w", s.timeout, stage, err)
	}
	return fmt.Errorf("the stop was given up after --shutdown-timeout %v while %s", s.timeout, stage)
}
