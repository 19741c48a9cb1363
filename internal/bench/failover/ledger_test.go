package failover

import (
	"testing"
	"time"
)

// wantBroken checks that one promise was broken the given number of times, and no other promise.
func wantBroken(t *testing.T, l *Ledger, promise string, times int) {
	t.Helper()
	for _, p := range append(promises(true), PromiseTold) {
		want := 0
		if p == promise {
			want = times
		}
		if n, first := l.Breach(p); n != want {
			t.Errorf("%q is broken %d times, want %d: %v", p, n, want, first)
		}
	}
}

func TestLedger_PositionTwice(t *testing.T) {
	t.Parallel()
	l := NewLedger()
	l.Acknowledged("s", contentOf(1, 1), 7, time.Now())
	l.Seen("s", 7, contentOf(1, 1))
	l.Seen("other", 7, contentOf(2, 1))
	wantBroken(t, l, "", 0)
	l.Seen("s", 7, contentOf(1, 2))
	wantBroken(t, l, PromiseOnce, 1)
}

func TestLedger_Lost(t *testing.T) {
	t.Parallel()
	held := map[int64]content{1: contentOf(1, 1), 3: contentOf(1, 3)}
	for _, quorum := range []bool{false, true} {
		l := NewLedger()
		for i := range 3 {
			l.Acknowledged("s", contentOf(1, i+1), int64(i+1), time.Now())
		}
		lost := l.Compare("s", held, quorum)
		if len(lost) != 1 || lost[0] != 2 {
			t.Errorf("lost %v, want 2", lost)
		}
		if quorum {
			wantBroken(t, l, PromiseKept, 1)
		} else {
			wantBroken(t, l, "", 0)
		}
	}
}

// TestLedger_FormerPrimary: what was sent after a promotion has a position after the base of its history.
func TestLedger_FormerPrimary(t *testing.T) {
	t.Parallel()
	now := time.Now()
	l := NewLedger()
	l.Promoted(now)
	l.Acknowledged("s", contentOf(1, 1), 8, now.Add(-time.Second))
	l.Acknowledged("s", contentOf(1, 2), 1001, now.Add(time.Second))
	l.Fence("s", []int64{1000}, true)
	wantBroken(t, l, "", 0)
	l.Acknowledged("s", contentOf(1, 3), 9, now.Add(2*time.Second))
	l.Fence("s", []int64{1000}, true)
	wantBroken(t, l, PromiseFenced, 1)
}

func TestCheckSeats(t *testing.T) {
	t.Parallel()
	l := NewLedger()
	held := map[int64]content{1: contentOf(1, 5), 2: contentOf(2, 6)}
	checkSeats(l, held)
	wantBroken(t, l, "", 0)
	held[3] = contentOf(2, 5)
	checkSeats(l, held)
	wantBroken(t, l, PromiseSeats, 1)
}

// TestSubscriber_Complete: a subscriber has everything that is stored, except what was reported as
// lost.
func TestSubscriber_Complete(t *testing.T) {
	t.Parallel()
	held := []seen{{1, contentOf(1, 1)}, {2, contentOf(1, 2)}, {50, contentOf(1, 3)}}
	for name, c := range map[string]struct {
		had    []seen
		broken int
	}{
		"all":     {had: held},
		"missing": {had: held[:2], broken: 1},
		"ghost":   {had: []seen{held[0], {2, contentOf(9, 9)}, held[2]}, broken: 1},
	} {
		l := NewLedger()
		s := &subscriber{client: client{load: &load{ledger: l}}, stream: "s", seen: c.had}
		s.compare(held)
		if n, _ := l.Breach(PromiseComplete); n != c.broken {
			t.Errorf("%s: broken %d times, want %d", name, n, c.broken)
		}
	}
	s := &subscriber{client: client{load: &load{ledger: NewLedger()}}, stream: "s", seen: []seen{held[0], held[1], {3, contentOf(9, 9)}}}
	s.forget(2)
	if s.last() != 2 || s.at.Load() != 2 {
		t.Errorf("goes on after %d, want 2", s.last())
	}
}
