package standby

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestBreaker: after a failure one read may try after a second, then after twice as long each time, up to thirty; with a success
// all may.
func TestBreaker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var b breaker
		away := errors.New("away")
		admitsAll := func(when string) {
			t.Helper()
			for range 3 {
				if !b.admits() {
					t.Errorf("not admitted %s", when)
				}
			}
		}
		admitsAll("before a failure")
		if !b.fail(away) || b.fail(away) || b.fail(away) { // all three were under way
			t.Error("the first failure is not the first, or another one is")
		}
		for _, pause := range []time.Duration{1, 2, 4, 8, 16, 30, 30} {
			if b.admits() {
				t.Errorf("admitted before %d s", pause)
			}
			time.Sleep(pause * time.Second)
			if !b.admits() || b.admits() || b.problem() != away {
				t.Errorf("after %d s: not exactly one may try; problem %v", pause, b.problem())
			}
			b.leave()
			if !b.admits() || b.admits() || b.problem() != away {
				t.Errorf("after %d s and a read that did not try: not exactly one may try; problem %v", pause, b.problem())
			}
			b.fail(away)
		}
		time.Sleep(30 * time.Second)
		if !b.admits() || b.succeed(false) || b.problem() != nil || !b.succeed(true) || b.succeed(true) {
			t.Error("the first success that is of use is not the first one, or another one is")
		}
		admitsAll("after a success")
		b.close()
		time.Sleep(time.Hour)
		if b.admits() || b.fail(away) || b.succeed(true) {
			t.Error("admitted after the end")
		}
	})
}
