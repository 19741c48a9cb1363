package stream

import (
	"testing"
)

// TestFeed_LossIsReportedOnce: a loss that is found after messages of the next history were read concerns the
// messages known before them, and counts once, also if several subscriptions find it.
func TestFeed_LossIsReportedOnce(t *testing.T) {
	t.Parallel()
	var lost int64
	f := newFeed(&Stream{name: "orders"}, &HubConfig{}, unknownHistory, func(_ *Stream, last, ghost int64) { lost += ghost - last })
	f.enter(0)
	f.told = 20
	f.enter(1 << 40)
	f.told = 1<<40 + 5
	f.foundLost(20, 15)
	f.foundLost(18, 15)
	if lost != 5 {
		t.Errorf("%d positions are reported, want 5", lost)
	}
	f.foundLost(1<<40+5, 1<<40+3) // by the next failover
	if lost != 7 {
		t.Errorf("%d positions are reported, want 2 more", lost)
	}
	f.foundLost(1<<40+4, 1<<40+3)
	if lost != 7 {
		t.Errorf("%d positions are reported, want no more", lost)
	}
}
