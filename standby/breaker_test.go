package standby

import (
	"context"
	"errors"
	"testing"
)

// TestBreaker: the breaker reports a failure once for each reason, and the first successful read
// afterwards.
func TestBreaker(t *testing.T) {
	t.Parallel()
	b := newBreaker()
	if b.problem() == nil {
		t.Error("reads are admitted before the first probe")
	}
	if b.succeed(false) || b.problem() != nil || !b.succeed(true) || b.succeed(true) {
		t.Error("the first read of use is not the first, or another one is")
	}
	slow := context.DeadlineExceeded
	if !b.fail(slow) || b.fail(slow) || !b.fail(ErrHistory) || b.fail(ErrHistory) || b.problem() != ErrHistory {
		t.Error("a failure is not told once for each reason")
	}
	if b.succeed(false) || b.problem() != nil || !b.succeed(true) {
		t.Error("reads are not admitted after a success")
	}
	b.close()
	if b.fail(slow) || b.succeed(true) || !errors.Is(b.problem(), errClosed) {
		t.Error("reads are admitted after the end")
	}
}
