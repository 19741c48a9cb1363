package pg

import (
	"context"
	"sync"
)

// Wait waits for the group until ctx ends, and reports whether the group was done. If not, a goroutine remains until it is.
func Wait(ctx context.Context, group *sync.WaitGroup) bool {
	done := make(chan struct{})
	go func() {
		group.Wait()
		close(done)
	}()
	select {
	case <-done:
		return true
	case <-ctx.Done():
		return false
	}
}
