package scenario

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// held is a side whose first call does not return before the run has ended.
type held struct{ end context.CancelFunc }

func (h held) send(_ context.Context, _, _ int, _ [][]byte, done func(error)) error {
	time.Sleep(100 * time.Millisecond) // synctest: a side of a bubble
	h.end()
	done(nil)
	return nil
}

func (held) close() {}

// TestWriters_LateAtTheEnd: messages that were due and not sent count, even if the
// writer did not wait at the end.
func TestWriters_LateAtTheEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		load := QueueLoad{Writers: 1, InFlight: 100, Batch: 2, Payload: 64, Rate: 1000} // a call every 2 ms
		w := &writers{load: load, side: held{cancel}, all: newMeters(1), sent: make([]int, 1)}
		if err := w.run(ctx); err != nil {
			t.Fatal(err)
		}
		if late := w.late.Load(); late < 98 || late%2 != 0 {
			t.Errorf("%d messages late, want 98 at least: 100 ms of 1000 a second, but for the first call", late)
		}
	})
}
