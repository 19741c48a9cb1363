package multinode

import (
	"slices"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/fault"
)

func held(positions ...int64) (all []stored) {
	for _, p := range positions {
		all = append(all, stored{p, contentOf(1, int(p))})
	}
	return all
}

// TestLedger_Kept: what is acknowledged is stored at its position, and nothing is stored twice.
func TestLedger_Kept(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		held   []stored
		broken []string
	}{
		"all, and one without an answer": {held: held(1, 2, 3, 4)},
		"lost":                           {held: held(1, 3), broken: []string{PromiseKept}},
		"another content":                {held: []stored{{1, contentOf(1, 1)}, {2, contentOf(2, 2)}, {3, contentOf(1, 3)}}, broken: []string{PromiseKept}},
		"twice":                          {held: append(held(1, 2, 3), stored{4, contentOf(1, 2)}), broken: []string{PromiseKept}},
	} {
		l := NewLedger()
		for _, a := range held(1, 2, 3) {
			l.Acknowledged("s", a.content, a.position)
		}
		l.compare("s", c.held)
		t.Run(name, func(t *testing.T) { wantBroken(t, l, c.broken...) })
	}
}

// TestComplete: a reader has everything that is stored, once and in order. A member of a stored room may lack its own chats.
func TestComplete(t *testing.T) {
	t.Parallel()
	own := func(c content) bool { return c == contentOf(1, 2) }
	for name, c := range map[string]struct {
		got    []stored
		may    func(content) bool
		broken []string
	}{
		"all":          {got: held(1, 2, 3)},
		"own missing":  {got: held(1, 3), may: own},
		"own received": {got: held(1, 2, 3), may: own},
		"missing":      {got: held(1, 3), broken: []string{PromiseComplete}},
		"last missing": {got: held(1, 2), broken: []string{PromiseComplete}},
		"not stored":   {got: held(1, 2, 3, 4), broken: []string{PromiseComplete}},
		"twice":        {got: held(1, 2, 2, 3), broken: []string{PromiseComplete}},
	} {
		l := NewLedger()
		complete(l, "reader", c.got, held(1, 2, 3), c.may)
		t.Run(name, func(t *testing.T) { wantBroken(t, l, c.broken...) })
	}
}

// TestReaders_Order: a position that does not rise is found when it arrives.
func TestReaders_Order(t *testing.T) {
	t.Parallel()
	for _, positions := range [][]int64{{1, 3, 2}, {1, 1}} {
		l := NewLedger()
		k := &keeper{client: client{load: &load{ledger: l}}}
		for _, p := range positions {
			k.receive(roomMessage{Position: p, Text: contentOf(1, int(p)).String()})
		}
		wantBroken(t, l, PromiseComplete)
	}
	for _, in := range []roomMessage{{Type: "history_lost", Last: 3}, {Type: "error", Code: "history_lost", Last: 3}} {
		l := NewLedger()
		k := &keeper{client: client{load: &load{ledger: l}}}
		k.take(in, nil)
		wantBroken(t, l, PromiseComplete)
	}
}

// job returns the delivery of a message.
func jobAt(position int64, token string) delivery {
	return delivery{Delivery: token, Payload: contentOf(1, int(position)).String(), Position: position, Attempt: 1}
}

// TestJobs_Promises: each kind of breach is found, and what is allowed is not taken for one.
func TestJobs_Promises(t *testing.T) {
	t.Parallel()
	now := time.Now()
	at := func(seconds float64) time.Time { return now.Add(time.Duration(seconds * float64(time.Second))) }
	one, two := life{0, 1}, life{1, 1}
	for name, c := range map[string]struct {
		happens func(j *jobs)
		broken  []string
	}{
		"settled": {happens: func(j *jobs) {
			j.take(jobAt(1, "a"), 1, one, at(0), at(1))
			j.settle(jobAt(1, "a"), 1)
		}},
		"never delivered": {broken: []string{PromiseSettled}, happens: func(*jobs) {}},
		"lost":            {broken: []string{PromiseSettled}, happens: func(j *jobs) { j.take(jobAt(1, "a"), 1, one, at(0), at(1)); j.lost(jobAt(1, "a"), false) }},
		"unknown":         {happens: func(j *jobs) { j.take(jobAt(1, "a"), 1, one, at(0), at(1)); j.unknown(jobAt(1, "a")) }},
		"lost after an uncertain answer": {happens: func(j *jobs) {
			j.take(jobAt(1, "a"), 1, one, at(0), at(1))
			j.lost(jobAt(1, "a"), true)
		}},
		"delivered after it is settled": {broken: []string{PromiseDone}, happens: func(j *jobs) {
			j.take(jobAt(1, "a"), 1, one, at(0), at(1))
			j.settle(jobAt(1, "a"), 1)
			j.take(jobAt(1, "b"), 2, two, at(40), at(41))
		}},
		"two holders": {broken: []string{PromiseLease, PromiseSettled}, happens: func(j *jobs) {
			j.take(jobAt(1, "a"), 1, one, at(0), at(1))
			j.take(jobAt(1, "b"), 2, two, at(10), at(11))
		}},
		"two holders, and the first one settles": {broken: []string{PromiseLease}, happens: func(j *jobs) {
			j.take(jobAt(1, "a"), 1, one, at(0), at(1))
			j.take(jobAt(1, "b"), 2, one, at(10), at(11))
			j.settle(jobAt(1, "a"), 1)
		}},
		"after the lease": {happens: func(j *jobs) {
			j.take(jobAt(1, "a"), 1, one, at(0), at(1))
			j.take(jobAt(1, "b"), 2, two, at(30), at(31))
			j.settle(jobAt(1, "b"), 2)
		}},
		"the node of the first was killed": {happens: func(j *jobs) {
			j.take(jobAt(1, "a"), 1, one, at(0), at(1))
			j.fails(0, at(2), true)(at(3))
			j.take(jobAt(1, "b"), 2, two, at(18), at(18))
			j.settle(jobAt(1, "b"), 2)
		}},
		"another node was killed": {broken: []string{PromiseLease}, happens: func(j *jobs) {
			j.take(jobAt(1, "a"), 1, one, at(0), at(1))
			j.fails(1, at(2), true)(at(3))
			j.take(jobAt(1, "b"), 2, two, at(18), at(18))
			j.settle(jobAt(1, "b"), 2)
		}},
		"it was killed before": {broken: []string{PromiseLease}, happens: func(j *jobs) {
			j.fails(0, at(-5), true)(at(-4))
			j.take(jobAt(1, "a"), 1, one, at(0), at(1))
			j.take(jobAt(1, "b"), 2, two, at(18), at(18))
			j.settle(jobAt(1, "b"), 2)
		}},
		"it was frozen for long": {happens: func(j *jobs) {
			j.take(jobAt(1, "a"), 1, one, at(0), at(1))
			j.fails(0, at(2), false)
			j.take(jobAt(1, "b"), 2, two, at(18), at(18))
			j.settle(jobAt(1, "b"), 2)
		}},
		"it was frozen for a moment": {broken: []string{PromiseLease}, happens: func(j *jobs) {
			j.take(jobAt(1, "a"), 1, one, at(0), at(1))
			j.fails(0, at(2), false)(at(3))
			j.take(jobAt(1, "b"), 2, two, at(18), at(18))
			j.settle(jobAt(1, "b"), 2)
		}},
		"another content": {broken: []string{PromiseKept, PromiseSettled}, happens: func(j *jobs) {
			j.take(jobAt(1, "a"), 1, one, at(0), at(1))
			j.take(delivery{Payload: "9 9", Position: 1}, 2, two, at(40), at(41))
		}},
	} {
		l := NewLedger()
		j := newJobs(l)
		l.Acknowledged(queue, contentOf(1, 1), 1)
		c.happens(j)
		j.check()
		t.Run(name, func(t *testing.T) { wantBroken(t, l, c.broken...) })
	}
}

// TestDepth_Left: each kind of message that is left is named.
func TestDepth_Left(t *testing.T) {
	t.Parallel()
	if left := (depth{}).left(); left != "" {
		t.Errorf("nothing is left, and it says %q", left)
	}
	for _, d := range []depth{{Ready: 1}, {Leased: 1}, {Delayed: 1}, {Dead: 1}} {
		if d.left() == "" {
			t.Errorf("%+v is nothing", d)
		}
	}
}

// TestRun_Late: recovery that takes too long breaks a promise.
func TestRun_Late(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		missing       int
		told, present time.Duration
		wrong         string
		broken        []string
	}{
		{told: time.Second, present: 9 * time.Second},
		{told: 3 * time.Second, broken: []string{PromiseRoomSoon}},
		{missing: 1, broken: []string{PromiseRoomSoon}},
		{present: 11 * time.Second, broken: []string{PromisePresence}},
		{wrong: "bob does not see ann", broken: []string{PromisePresence}},
	} {
		r := &run{ledger: NewLedger(), cfg: Config{ToldWithin: 2 * time.Second, PresentWithin: 10 * time.Second}}
		r.late(Cut, c.missing, c.told, c.wrong, c.present)
		wantBroken(t, r.ledger, c.broken...)
	}
}

// TestPlan_FromSeed: the seed determines the plan, and the faults take turns.
func TestPlan_FromSeed(t *testing.T) {
	t.Parallel()
	a, b, other := plan(7, Faults, 30, 3, 5*time.Second), plan(7, Faults, 30, 3, 5*time.Second), plan(8, Faults, 30, 3, 5*time.Second)
	for i, s := range a {
		if s != b[i] || s.fault != Faults[i%len(Faults)] || s.node == s.other || s.node > 2 || s.other > 2 || s.length < shortest || s.length > 5*time.Second {
			t.Errorf("fault %d: %+v and %+v", i, s, b[i])
		}
	}
	if slices.Equal(a, other) {
		t.Error("another seed decides the same")
	}
}

// TestParseFaults: unknown faults are rejected, and those that need namespaces where there are none.
func TestParseFaults(t *testing.T) {
	t.Parallel()
	if _, err := ParseFaults([]string{"kill", "flood"}); err == nil {
		t.Error("a fault that there is not is taken")
	}
	if all, err := ParseFaults([]string{"kill", "freeze"}); err != nil || !slices.Equal(all, []Fault{Kill, Freeze}) {
		t.Errorf("%v, %v", all, err)
	}
	all, why := DefaultFaults()
	if _, err := ParseFaults([]string{"cut"}); (err == nil) != (fault.Available() == nil) || (why == nil) != (err == nil) || slices.Contains(all, Cut) != (err == nil) {
		t.Errorf("by default %v, because of %v; cut: %v", all, why, err)
	}
}

func TestContent_RoundTrip(t *testing.T) {
	t.Parallel()
	want := contentOf(17, 123456)
	if got, err := parseContent(want.String()); err != nil || got != want || got.client() != 17 {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
	if _, err := parseContent("nothing"); err == nil {
		t.Error("foreign text is taken")
	}
}
