package multinode

import (
	"slices"
	"testing"
)

// wantBroken checks that exactly these promises were broken.
func wantBroken(t *testing.T, l *Ledger, want ...string) {
	t.Helper()
	for _, p := range promises {
		if n, first := l.Breach(p); (n > 0) != slices.Contains(want, p) {
			t.Errorf("%q is broken %d times: %v", p, n, first)
		}
	}
}

// party is a room with two members on one node, and one on another.
type party struct {
	*room
	ann, bob, carol *session
}

func newParty() *party {
	r := newRoom(NewLedger(), 0)
	p := &party{room: r}
	one, two := life{0, 1}, life{1, 1}
	p.ann, p.bob, p.carol = r.begin("ann", one, false), r.begin("bob", one, true), r.begin("carol", two, false)
	for _, s := range []*session{p.ann, p.bob, p.carol} {
		r.join(s)
	}
	return p
}

// says has a member send some chats, which are acknowledged.
func (p *party) says(s *session, chats int) {
	for range chats {
		p.ack(s, p.send(s))
	}
}

// hears has a member receive chats.
func (p *party) hears(s, from *session, numbers ...int) {
	for _, n := range numbers {
		p.receive(s, from.id, n)
	}
}

// TestRoom_Promises: each kind of breach is found, and what is allowed is not taken for one.
func TestRoom_Promises(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		happens func(p *party)
		broken  string
	}{
		"all received": {happens: func(p *party) {
			p.says(p.carol, 3)
			p.hears(p.ann, p.carol, 1, 2, 3)
			p.hears(p.bob, p.carol, 1, 2, 3)
		}},
		"told": {happens: func(p *party) {
			p.says(p.carol, 5)
			for _, s := range []*session{p.ann, p.bob} {
				p.hears(s, p.carol, 1)
				p.gap(s, 2)
				p.hears(s, p.carol, 4, 5)
			}
		}},
		"twice": {broken: PromiseRoomOnce, happens: func(p *party) {
			p.says(p.ann, 2)
			p.hears(p.bob, p.ann, 1, 2, 2)
			p.hears(p.carol, p.ann, 1, 2)
		}},
		"never sent": {broken: PromiseRoomOnce, happens: func(p *party) { p.hears(p.bob, p.carol, 1) }},
		"own chat": {broken: PromiseRoomOnce, happens: func(p *party) {
			p.says(p.carol, 1)
			p.hears(p.carol, p.carol, 1)
		}},
		"out of order": {broken: PromiseRoomOrder, happens: func(p *party) {
			p.says(p.carol, 3)
			p.hears(p.bob, p.carol, 2, 1, 3)
		}},
		"lost and not told": {broken: PromiseRoomTold, happens: func(p *party) {
			p.says(p.carol, 3)
			p.hears(p.bob, p.carol, 1, 3)
		}},
		"told too late": {broken: PromiseRoomTold, happens: func(p *party) {
			p.says(p.carol, 3)
			p.hears(p.bob, p.carol, 1, 3)
			p.gap(p.bob, 1)
		}},
		"told of too few": {broken: PromiseRoomTold, happens: func(p *party) {
			p.says(p.carol, 5)
			p.hears(p.bob, p.carol, 1)
			p.gap(p.bob, 2)
			p.hears(p.bob, p.carol, 5)
		}},
		"the last ones lost and not told": {broken: PromiseRoomTold, happens: func(p *party) {
			p.says(p.carol, 5)
			p.hears(p.bob, p.carol, 1, 2, 3)
		}},
		"told of nothing": {broken: PromiseRoomTold, happens: func(p *party) {
			p.says(p.carol, 2)
			p.hears(p.bob, p.carol, 1, 2)
			p.gap(p.bob, 1)
		}},
		"told, and received by another member of the node": {broken: PromiseRoomTold, happens: func(p *party) {
			p.says(p.carol, 3)
			p.hears(p.ann, p.carol, 1, 2, 3)
			p.hears(p.bob, p.carol, 1)
			p.gap(p.bob, 1)
			p.hears(p.bob, p.carol, 3)
		}},
		"told before it is received after all": {broken: PromiseRoomTold, happens: func(p *party) {
			p.says(p.carol, 2)
			p.hears(p.bob, p.carol, 1)
			p.gap(p.bob, 1)
			p.hears(p.bob, p.carol, 2)
		}},
		"lost within a node": {broken: PromiseRoomTold, happens: func(p *party) {
			p.says(p.ann, 3)
			p.hears(p.bob, p.ann, 1)
			p.gap(p.bob, 1) // a gap is for other nodes
			p.hears(p.bob, p.ann, 3)
		}},
		"the first ones of a member that joined later": {broken: PromiseRoomTold, happens: func(p *party) {
			p.says(p.carol, 1)
			p.hears(p.bob, p.carol, 1)
			dora := p.begin("dora", p.carol.life, false)
			p.join(dora)
			p.says(dora, 2)
			p.hears(p.bob, dora, 2)
		}},
		"before the first contact": {happens: func(p *party) {
			p.says(p.carol, 5)
			p.hears(p.bob, p.carol, 5)
		}},
		"the last ones of a node that is killed": {happens: func(p *party) {
			p.says(p.carol, 5)
			p.hears(p.bob, p.carol, 1, 2)
			p.end(p.carol)
		}},
		"told to a node that has begun later": {broken: PromiseRoomTold, happens: func(p *party) {
			p.says(p.carol, 5)
			dora := p.begin("dora", life{2, 1}, false)
			p.join(dora)
			p.gap(dora, 1)
		}},
	} {
		p := newParty()
		c.happens(p)
		p.check()
		t.Run(name, func(t *testing.T) {
			wantBroken(t, p.ledger, slices.DeleteFunc([]string{c.broken}, func(s string) bool { return s == "" })...)
		})
	}
}

// TestRoom_Open: what was sent before a repair stays open until it is received or told.
func TestRoom_Open(t *testing.T) {
	t.Parallel()
	p := newParty()
	p.says(p.carol, 1)
	p.hears(p.ann, p.carol, 1)
	p.hears(p.bob, p.carol, 1)
	p.says(p.carol, 3)
	sent := p.snapshot()
	p.says(p.carol, 3) // after the repair
	want := func(open int) {
		t.Helper()
		if n := p.open(sent); n != open {
			t.Errorf("%d are open, want %d", n, open)
		}
	}
	want(3)
	p.hears(p.ann, p.carol, 2, 3, 4)
	want(3)
	p.gap(p.bob, 2)
	want(1)
	p.hears(p.bob, p.carol, 4)
	want(0)
	if p.quiet() != true {
		t.Error("all are acknowledged")
	}
	p.send(p.ann)
	if p.quiet() {
		t.Error("one is not acknowledged")
	}
}

// TestRoom_Presence: a watcher is right if it has exactly the users and connections that are there.
func TestRoom_Presence(t *testing.T) {
	t.Parallel()
	p := newParty()
	want := func(what string, right bool) {
		t.Helper()
		if wrong := p.wrong(); (wrong == "") != right {
			t.Errorf("%s: %q", what, wrong)
		}
	}
	want("nothing told", false)
	p.present(p.bob, 3, []string{"ann", "bob", "carol"}, nil, nil)
	want("all", true)
	p.present(p.bob, 4, nil, nil, nil)
	want("one connection more", false)
	p.present(p.bob, 3, nil, []string{"dora"}, nil)
	want("one user more", false)
	p.present(p.bob, 3, nil, nil, []string{"carol"})
	want("another user", false)
	p.present(p.bob, 3, nil, []string{"carol"}, []string{"dora"})
	want("all again", true)
	p.end(p.carol)
	want("one has left", false)
	p.present(p.bob, 2, nil, nil, []string{"carol"})
	want("that is told", true)
	p.members = 3
	want("one connects again", false)
	p.begin("dora", life{1, 2}, false)
	want("one is joining", false)
}

func TestNumbers_Within(t *testing.T) {
	t.Parallel()
	var none *numbers
	if none.has(3) || none.within(0, 100) != 0 {
		t.Error("a nil set has something")
	}
	n := &numbers{}
	var all []int
	for x := 1; x < 400; x += 1 + x%7 {
		n.add(x)
		all = append(all, x)
	}
	for first := range 200 {
		for _, last := range []int{first - 1, first, first + 1, first + 63, first + 64, 1000} {
			want := 0
			for _, x := range all {
				if first <= x && x <= last {
					want++
				}
			}
			if got := n.within(first, last); got != want {
				t.Fatalf("%d numbers from %d to %d, want %d", got, first, last, want)
			}
		}
	}
}
