package stream

import (
	"testing"
	"time"
)

// TestFeed_Rounds: while a wake is planned, a subscription that got everything at the last one waits for it, and one that lags
// does not.
func TestFeed_Rounds(t *testing.T) {
	t.Parallel()
	cfg := HubConfig{}.withDefaults()
	f := newFeed(&Stream{id: 1}, &cfg, 0, nil)
	commit := func(position int64) {
		m := Message{Position: position}
		f.grown(tailPage{messages: []Message{m}, bytes: m.held()})
	}
	got := func(after int64) int64 {
		v := f.look(after, f.epoch.number)
		if (len(v.page) > 0) == (v.wait != nil) || v.err != nil {
			t.Fatalf("after %d: %+v", after, v)
		}
		if len(v.page) == 0 {
			return 0
		}
		return v.page[len(v.page)-1].Position
	}
	f.checked.hints, f.checked.after = f.hints, 0 // the stream is empty
	commit(1)
	if n := got(0); n != 1 {
		t.Errorf("without a planned wake: up to %d, want 1", n)
	}
	f.waking = waking{woken: 1000, at: time.Now().Add(time.Hour), upTo: 1} // the next round is far away
	commit(2)
	for after, want := range map[int64]int64{0: 2, 1: 0, 2: 0} {
		if n := got(after); n != want {
			t.Errorf("after %d, before the wake: up to %d, want %d", after, n, want)
		}
	}
	woken := f.changed
	f.waking.later.Stop()
	f.wakeNow()
	<-woken
	if n := got(1); n != 2 {
		t.Errorf("after the wake: up to %d, want 2", n)
	}
}
