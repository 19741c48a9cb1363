package cluster

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/relay/relaytest"
	"github.com/tidewire/tidewire/internal/room"
)

// crowd is a run of some nodes that have users in a room, and tell each other who is there, over a network that breaks. A seed decides what happens.
type crowd struct {
	random  *rand.Rand
	network *relaytest.Network
	nodes   []*Node
	room    []*seat // of each node; nil while the room has no members there
	now     time.Time
	beats   int   // since nothing was under way
	stopped []int // for how many beats each node does nothing, as a process that is not scheduled
}

// seat is the room on a node: it does what room.Room does for presence.
type seat struct {
	c        *crowd
	out      *link
	users    map[string]bool
	last     map[string]bool // as other nodes were told last
	asked    time.Time       // until when they are told
	fresh    bool
	watching bool
	view     map[uint64]map[string]bool
}

func newCrowd(seed uint64, nodes int) *crowd {
	c := &crowd{random: rand.New(rand.NewPCG(seed, 1)), network: relaytest.New(nodes), now: time.Unix(1000, 0), room: make([]*seat, nodes), stopped: make([]int, nodes)}
	for i := range nodes {
		n, err := newNode(uint64(100+i), c.network.Node(i), func() time.Time { return c.now })
		if err != nil {
			panic(err)
		}
		c.nodes = append(c.nodes, n)
	}
	c.quiet()
	return c
}

func (c *crowd) quiet() {
	for c.network.Step(c.random) {
	}
	c.beats = 0
}

// beat lets a second pass: nodes send what they send then, and rooms tell what has changed.
func (c *crowd) beat() {
	if c.beats++; c.beats > 2 {
		c.quiet()
	}
	c.now = c.now.Add(time.Second)
	for _, i := range c.random.Perm(len(c.nodes)) {
		if c.stopped[i] > 0 {
			c.stopped[i]--
			continue
		}
		c.nodes[i].beat()
		c.tell(i)
	}
}

// tell tells other nodes who is in the room, if they have asked.
func (c *crowd) tell(i int) {
	s := c.room[i]
	if s == nil || c.now.After(s.asked) {
		return
	}
	p := room.Presence{Count: len(s.users), Whole: s.fresh}
	for _, user := range slices.Sorted(maps.Keys(s.users)) {
		if s.fresh || !s.last[user] {
			p.Joined = append(p.Joined, user)
		}
	}
	for _, user := range slices.Sorted(maps.Keys(s.last)) {
		if !s.fresh && !s.users[user] {
			p.Left = append(p.Left, user)
		}
	}
	s.last, s.fresh = maps.Clone(s.users), false
	s.out.Present(p)
}

func (s *seat) Publish([]byte) {}

func (s *seat) Missed(int) {}

// Watched implements inlet.
func (s *seat) Watched(whole bool) {
	s.fresh = s.fresh || whole || s.c.now.After(s.asked)
	s.asked = s.c.now.Add(7 * time.Second)
}

// Present implements inlet.
func (s *seat) Present(node uint64, p room.Presence) {
	if !s.watching || s.view[node] == nil && !p.Whole {
		return
	}
	if p.Whole {
		s.view[node] = make(map[string]bool)
	}
	for _, user := range p.Joined {
		s.view[node][user] = true
	}
	for _, user := range p.Left {
		delete(s.view[node], user)
	}
}

// Gone implements inlet.
func (s *seat) Gone(node uint64) { delete(s.view, node) }

// open begins the room on a node.
func (c *crowd) open(i int) *seat {
	s := &seat{c: c, users: map[string]bool{"first": true}, view: make(map[uint64]map[string]bool)}
	s.out = c.nodes[i].connect("lobby", s)
	c.room[i] = s
	return s
}

// watch begins or ends to watch the room.
func (s *seat) watch(on bool) {
	s.watching = on
	clear(s.view)
	s.out.Watch(on)
}

func (c *crowd) act() {
	i, j := c.random.IntN(len(c.nodes)), c.random.IntN(len(c.nodes))
	s := c.room[i]
	switch k := c.random.IntN(100); {
	case k < 3 && i != j:
		c.network.Cut(i, j, c.random)
	case k < 6 && i != j:
		c.network.Heal(i, j)
	case k < 1:
		c.stopped[i] = 1 + c.random.IntN(20)
	case k < 16:
		c.beat()
	case c.stopped[i] > 0:
		c.network.Step(c.random)
	case k < 20:
		c.nodes[i].askPresence(false)
	case k < 40 && s == nil:
		c.open(i)
	case k < 22 && s != nil:
		s.out.Watch(false)
		s.out.Close()
		c.room[i] = nil
	case k < 30 && s != nil:
		user := fmt.Sprint("user", c.random.IntN(6))
		if s.users[user] {
			delete(s.users, user)
		} else {
			s.users[user] = true
		}
	case k < 34 && s != nil:
		c.tell(i)
	case k < 38 && s != nil:
		s.watch(!s.watching)
	default:
		c.network.Step(c.random)
	}
}

// settle mends everything, and lets ten seconds pass.
func (c *crowd) settle() {
	clear(c.stopped)
	for i := range c.nodes {
		for j := range c.nodes {
			if i != j {
				c.network.Heal(i, j)
			}
		}
	}
	for range 10 {
		c.beat()
		c.quiet()
		for _, n := range c.nodes {
			n.askPresence(false)
		}
		c.quiet()
		for i := range c.nodes {
			c.tell(i)
		}
		c.quiet()
	}
}

// check says that who watches knows exactly who is in the room on the other nodes.
func (c *crowd) check() string {
	for i, s := range c.room {
		if s == nil || !s.watching {
			continue
		}
		for j, other := range c.room {
			if i == j {
				continue
			}
			want, got := []string{}, slices.Sorted(maps.Keys(s.view[uint64(100+j)]))
			if other != nil {
				want = slices.Sorted(maps.Keys(other.users))
			}
			if !slices.Equal(got, want) {
				return fmt.Sprintf("node %d knows %q on node %d, where %q are", i, got, j, want)
			}
		}
	}
	for _, n := range c.nodes {
		if bad := n.Stats().Malformed; bad > 0 {
			return fmt.Sprintf("%d messages are malformed", bad)
		}
	}
	return ""
}

// TestNode_PresenceHistories: ten seconds after the last fault, who is in a room is known on all nodes on which somebody watches.
func TestNode_PresenceHistories(t *testing.T) {
	t.Parallel()
	first, histories := seeds()
	for seed := first; seed < first+uint64(histories); seed++ {
		c := newCrowd(seed, 2+int(seed%3))
		for range 50 + c.random.IntN(300) {
			c.act()
		}
		c.settle()
		if why := c.check(); why != "" {
			t.Fatalf("SEED=%d: %s", seed, why)
		}
	}
	t.Logf("%d histories from SEED=%d", histories, first)
}

// TestNode_WatchedAnew: somebody watches a room anew, and the question for all names is lost: what has changed since the names of
// before is not enough.
func TestNode_WatchedAnew(t *testing.T) {
	t.Parallel()
	c := newCrowd(1, 2)
	watcher := c.open(0)
	c.open(1)
	watcher.watch(true)
	c.settle()
	watcher.watch(false)
	watcher.watch(true)
	c.network.Cut(0, 1, c.random)
	c.nodes[0].askPresence(false)
	c.network.Heal(0, 1)
	c.quiet()
	c.settle()
	if why := c.check(); why != "" {
		t.Error(why)
	}
}

// TestNode_PresenceAfterSilence: a node that was silent for so long that it counts as gone is asked for all its users when it goes on.
func TestNode_PresenceAfterSilence(t *testing.T) {
	t.Parallel()
	c := newCrowd(1, 2)
	c.open(1)
	s := c.open(0)
	s.watch(true)
	c.settle()
	c.stopped[1] = 20
	for range 10 {
		c.beat()
	}
	if s.view[101] != nil {
		t.Errorf("%v are known on a node that counts as gone", s.view[101])
	}
	c.settle()
	if why := c.check(); why != "" {
		t.Errorf("when it goes on: %s", why)
	}
}
