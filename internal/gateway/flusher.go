package gateway

import (
	"context"
	"sync"
)

// flusher flushes answers that were queued outside the reading goroutines: all
// answers of a commit to one connection leave in one write.
type flusher struct {
	mu      sync.Mutex
	waiting map[*connection]struct{}
	wake    chan struct{} // one slot
	quit    context.CancelFunc
	running sync.WaitGroup
}

// newFlusher returns a flusher that runs until stop.
func newFlusher() *flusher {
	f := &flusher{waiting: make(map[*connection]struct{}), wake: make(chan struct{}, 1)}
	ctx, quit := context.WithCancel(context.Background())
	f.quit = quit
	f.running.Go(func() { f.run(ctx) })
	return f
}

// later flushes c soon. It never waits.
func (f *flusher) later(c *connection) {
	f.mu.Lock()
	f.waiting[c] = struct{}{}
	f.mu.Unlock()
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

func (f *flusher) run(ctx context.Context) {
	var ready []*connection
	for {
		select {
		case <-f.wake:
		case <-ctx.Done():
			return
		}
		f.mu.Lock()
		for c := range f.waiting {
			ready = append(ready, c)
		}
		clear(f.waiting)
		f.mu.Unlock()
		for _, c := range ready {
			c.Flush()
		}
		clear(ready)
		ready = ready[:0]
	}
}

// stop is called when every connection has ended.
func (f *flusher) stop() {
	f.quit()
	f.running.Wait()
}
