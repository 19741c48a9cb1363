package bench

import (
	"context"
	"testing"
	"time"
)

// TestSleeper is never early, and not late by much most of the time.
func TestSleeper(t *testing.T) {
	s := NewSleeper()
	defer s.Close()
	late := NewHistogram()
	for i := range 100 {
		due := time.Now().Add(time.Duration(i%5) * 700 * time.Microsecond)
		if !s.Until(t.Context(), due) {
			t.Fatal("the context did not end")
		}
		since := time.Since(due)
		if since < 0 {
			t.Fatalf("awake %v early", -since)
		}
		late.Record(since)
	}
	if p10 := late.Quantile(0.1); p10 > 10*time.Millisecond {
		t.Errorf("one in ten was awake within %v at best", p10)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if begun := time.Now(); s.Until(ended, begun.Add(time.Hour)) || time.Since(begun) > time.Minute {
		t.Error("slept beyond the end of its context")
	}
}
