package cluster

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/internal/relay/relaytest"
	"github.com/tidewire/tidewire/websocket"
)

// history is a run of some nodes, all of which have one room now and then, over a network that breaks. A seed decides what happens
// in which order.
type history struct {
	random  *rand.Rand
	network *relaytest.Network
	nodes   []*Node
	room    []*session // of each node; nil while the room has no members there
	sent    []int      // frames that each node has sent so far
	now     time.Time
	beats   int // since nothing was under way
	failed  string
}

// session is a room on a node, from its first member to its last.
type session struct {
	mute
	h    *history
	node int
	out  *link
	next uint64  // number of the next frame, in this session
	got  [][]int // frames of each node, in the order in which they came
	told int     // frames that members were told to be missing
	late int     // those that they were told since the last frame
}

func newHistory(seed uint64, nodes int) *history {
	h := &history{random: rand.New(rand.NewPCG(seed, 0)), network: relaytest.New(nodes), now: time.Unix(1000, 0), room: make([]*session, nodes), sent: make([]int, nodes)}
	for i := range nodes {
		n, err := newNode(uint64(100+i), h.network.Node(i), func() time.Time { return h.now })
		if err != nil {
			panic(err)
		}
		h.nodes = append(h.nodes, n)
	}
	h.quiet()
	return h
}

// quiet delivers everything.
func (h *history) quiet() {
	for h.network.Step(h.random) {
	}
	h.beats = 0
}

// beat lets a second pass. What is under way arrives within two seconds: if not, a connection is broken.
func (h *history) beat() {
	if h.beats++; h.beats > 2 {
		h.quiet()
	}
	h.now = h.now.Add(time.Second)
	for _, i := range h.random.Perm(len(h.nodes)) {
		h.nodes[i].beat()
	}
}

// Publish implements inlet.
func (s *session) Publish(frames []byte) {
	for len(frames) > 0 {
		head, size, _ := websocket.ParseHeader(frames)
		var from, n int
		fmt.Sscanf(string(frames[size:size+int(head.Length)]), "%d:%d", &from, &n)
		if got := s.got[from]; len(got) > 0 && got[len(got)-1] >= n {
			s.h.failed = fmt.Sprintf("node %d got frame %d of node %d after %d", s.node, n, from, got[len(got)-1])
		}
		s.exact(from, n)
		s.late = 0
		s.got[from] = append(s.got[from], n)
		frames = frames[size+int(head.Length):]
	}
}

// Missed implements inlet.
func (s *session) Missed(n int) {
	if n <= 0 {
		s.h.failed = fmt.Sprintf("node %d was told of %d missing frames", s.node, n)
	}
	s.told += n
	s.late += n
}

// exact checks the number of missing frames before the next one. With more than one other node it does not know whose frames are missing.
func (s *session) exact(from, next int) {
	if got := s.got[from]; len(s.got) == 2 && len(got) > 0 && next-got[len(got)-1]-1 != s.late {
		s.h.failed = fmt.Sprintf("node %d was told of %d missing frames between %d and %d", s.node, s.late, got[len(got)-1], next)
	}
}

func (h *history) open(i int) {
	if h.room[i] == nil {
		s := &session{h: h, node: i, next: 1, got: make([][]int, len(h.nodes))}
		s.out = h.nodes[i].connect("lobby", s)
		h.room[i] = s
	}
}

func (h *history) close(i int) {
	if s := h.room[i]; s != nil {
		s.out.Close()
		h.room[i] = nil
	}
}

func (h *history) send(i, count int) {
	s := h.room[i]
	if s == nil {
		return
	}
	var frames []byte
	for range count {
		h.sent[i]++
		frames = websocket.AppendFrame(frames, websocket.OpText, fmt.Appendf(nil, "%d:%d", i, h.sent[i]))
	}
	s.out.Send(s.next, count, frames)
	s.next += uint64(count)
}

// act does something.
func (h *history) act() {
	i, j := h.random.IntN(len(h.nodes)), h.random.IntN(len(h.nodes))
	switch k := h.random.IntN(100); {
	case k < 3 && i != j:
		h.network.Cut(i, j, h.random)
	case k < 6 && i != j:
		h.network.Heal(i, j)
	case k < 8:
		h.close(i)
	case k < 14:
		h.open(i)
	case k < 22:
		h.beat()
	case k < 50:
		h.send(i, 1+h.random.IntN(4))
	default:
		h.network.Step(h.random)
	}
}

// settle mends everything, and lets so much time pass that all losses are known.
func (h *history) settle() {
	for i := range h.nodes {
		for j := range h.nodes {
			if i != j {
				h.network.Heal(i, j)
			}
		}
	}
	h.quiet()
	for range 2 {
		h.beat()
		h.quiet()
	}
}

// check says that each frame after the first that a node has got of another was given once, or told to be missing.
func (h *history) check() string {
	if h.failed != "" {
		return h.failed
	}
	for i, s := range h.room {
		if s == nil {
			continue
		}
		lost, most := 0, 0
		for j, got := range s.got {
			if j == i {
				continue
			}
			most += h.sent[j] - len(got)
			s.exact(j, h.sent[j]+1)
			if len(got) > 0 {
				lost += h.sent[j] - got[0] + 1 - len(got)
			}
		}
		if s.told < lost || s.told > most {
			return fmt.Sprintf("node %d was told of %d missing frames, and misses %d to %d", i, s.told, lost, most)
		}
	}
	if h.failed != "" {
		return h.failed
	}
	for _, n := range h.nodes {
		if bad := n.Stats().Malformed; bad > 0 {
			return fmt.Sprintf("%d messages are malformed", bad)
		}
	}
	return ""
}

// seeds returns the first seed of a test, and how many there are: SEED alone, if it is set.
func seeds() (first uint64, n int) {
	if seed, err := strconv.ParseUint(os.Getenv("SEED"), 10, 64); err == nil {
		return seed, 1
	}
	if seeds := pgtest.Seeds(); seeds > 1 {
		return uint64(time.Now().UnixNano()), 10_000 * int(seeds)
	}
	return uint64(time.Now().UnixNano()), 1000
}

// TestNode_Histories: whatever is cut and mended, opened and closed, each frame is given once or told to be missing.
func TestNode_Histories(t *testing.T) {
	t.Parallel()
	first, histories := seeds()
	gaps, frames := 0, 0
	for seed := first; seed < first+uint64(histories); seed++ {
		h := newHistory(seed, 2+int(seed%3))
		for range 50 + h.random.IntN(400) {
			h.act()
		}
		h.settle()
		if why := h.check(); why != "" {
			t.Fatalf("SEED=%d: %s", seed, why)
		}
		for _, s := range h.room {
			if s != nil {
				gaps += s.told
				for _, got := range s.got {
					frames += len(got)
				}
			}
		}
	}
	if histories > 100 && (gaps == 0 || frames == 0) {
		t.Errorf("%d frames were given and %d told to be missing: the histories show nothing", frames, gaps)
	}
	t.Logf("%d histories from SEED=%d: %d frames given, %d told to be missing", histories, first, frames, gaps)
}
