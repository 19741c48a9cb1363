package pg

import "context"

// Signal wakes the goroutine that reads a channel with a buffer of one. It does not block:
// if a signal is already pending, the two count as one.
func Signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Acquire takes a slot of a channel that serves as a semaphore. If ctx ends first, the error is
// that of ctx.
func Acquire(ctx context.Context, slots chan<- struct{}) error {
	select {
	case slots <- struct{}{}: // also if ctx has ended
		return nil
	default:
	}
	select {
	case slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
