package queue

import (
	"testing"
	"time"
)

// TestPace: a Consumer that settles fast may take maxPace messages, one that is slow takes no more than its
// share, and a Consumer that has become slow takes fewer again.
func TestPace(t *testing.T) {
	t.Parallel()
	page := func(p *pace, took time.Duration, count int) {
		p.delivered(time.Now().Add(-took), count)
		p.delivered(time.Now(), 5) // while the first is not settled: not counted
		for range count {
			p.settled()
		}
		p.settled() // of the second
	}
	var p pace
	for range 100 {
		page(&p, time.Second, 10)
	}
	if p.perPage != 0 {
		t.Errorf("slow: %d messages, want 0", p.perPage)
	}
	for range 100 {
		page(&p, -time.Hour, 10) // in no time
	}
	if p.perPage != maxPace {
		t.Errorf("fast: %d messages, want %d", p.perPage, maxPace)
	}
	for range 100 {
		page(&p, time.Second, 10)
	}
	if p.perPage > 3 { // the average ends above 0
		t.Errorf("slow again: %d messages, want at most 3", p.perPage)
	}
}
