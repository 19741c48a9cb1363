package gateway_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/websocket"
)

// ownership is the time in which a connection owns a partition, as its client sees it.
type ownership struct {
	partition int
	start     int64   // the offset with which it began
	got       []int64 // positions of messages
	asked     int64   // the highest position whose commit was sent
	committed int64   // the highest position whose commit was answered with ok, or start
	unsure    bool    // the connection has got the partition once more, so an ok may be about that
	over      bool    // it was read when another owner had committed more: it had ended by then
	open      bool
}

// history is what the members of a group have seen.
type history struct {
	t       *testing.T
	servers []database
	stop    atomic.Bool

	mu        sync.Mutex
	all       []*ownership
	committed map[int]int64 // by partition: the highest position whose commit was answered with ok
	fenced    int
}

// member is one connection of a member. Only one goroutine uses it.
type member struct {
	*history
	name  string
	conn  *websocket.Conn
	owned map[int]*ownership
	had   []*ownership
	asked map[int]*ownership // by id of the commit
	at    map[int]int64      // by id: its position
	id    int
	left  bool
}

// live joins and leaves as a member in many ways until the test is over.
func (h *history) live(name string, random *rand.Rand) {
	for !h.stop.Load() && !h.t.Failed() {
		h.once(name, random, func(int) bool { return h.stop.Load() })
	}
}

// once is one connection. It ends when done says so, or by chance.
func (h *history) once(name string, random *rand.Rand, done func(messages int) bool) {
	conn, err := websocket.Dial(h.t.Context(), "ws://"+h.servers[random.IntN(len(h.servers))].addr+"/ws", websocket.Config{})
	if err != nil {
		h.t.Error(err)
		return
	}
	defer conn.Abort()
	m := &member{history: h, name: name, conn: conn, owned: make(map[int]*ownership), asked: make(map[int]*ownership), at: make(map[int]int64)}
	more := ""
	credits := random.IntN(2) == 0
	if credits {
		more = `,"credits":7`
	}
	m.say(`{"type":"subscribe","id":"join","stream":"s","group":"g","share":true` + more + `}`)
	life := time.Now().Add(time.Duration(500+random.IntN(4000)) * time.Millisecond)
	messages, ending := 0, random.IntN(3)
	for leaving := false; !m.left; {
		if over := done(messages) || time.Now().After(life); over && !leaving {
			switch ending {
			case 0:
				return // without a Close frame
			case 1:
				conn.Close(websocket.StatusNormal, "")
				return
			}
			leaving = true
			m.say(`{"type":"unsubscribe","id":"leave","subscription":"s"}`)
		}
		conn.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		read, err := conn.Read()
		for _, raw := range read {
			p := m.take(raw.Payload)
			if p.Type != "message" {
				continue
			}
			messages++
			if o := m.owned[p.partition()]; o != nil && random.IntN(3) > 0 && !leaving {
				m.commit(o, p.Position)
			}
			if credits {
				m.say(`{"type":"credit","subscription":"s","n":1}`)
			}
		}
		if err != nil && !isTimeout(err) {
			return
		}
		if random.IntN(40) == 0 {
			time.Sleep(time.Duration(random.IntN(2500)) * time.Millisecond) // it stalls
		}
	}
}

func isTimeout(err error) bool {
	t, ok := err.(interface{ Timeout() bool })
	return ok && t.Timeout()
}

func (m *member) say(text string) {
	m.conn.Queue(websocket.OpText, []byte(text))
	m.conn.Flush()
}

func (m *member) commit(o *ownership, position int64) {
	m.id++
	m.asked[m.id], m.at[m.id] = o, position
	m.mu.Lock()
	o.asked = max(o.asked, position)
	m.mu.Unlock()
	m.say(fmt.Sprintf(`{"type":"commit","id":%d,"stream":"s","group":"g","partition":%d,"position":%d}`, m.id, o.partition, position))
}

// take notes a message, and checks what can be checked at once.
func (m *member) take(line []byte) pushed {
	m.mu.Lock()
	defer m.mu.Unlock()
	var p struct {
		pushed
		ID any
	}
	if err := json.Unmarshal(line, &p); err != nil {
		m.t.Errorf("%s: %v", line, err)
	}
	switch p.Type {
	case "assigned":
		for i, partition := range p.Partitions {
			m.assigned(partition, p.Positions[i])
		}
	case "revoked":
		for _, partition := range p.Partitions {
			if m.owned[partition] == nil {
				m.t.Errorf("%s: %s, and it does not own it", m.name, line)
				continue
			}
			m.owned[partition].open = false
			delete(m.owned, partition)
		}
	case "message":
		o := m.owned[p.partition()]
		if o == nil {
			m.t.Errorf("%s: %s, and it does not own the partition", m.name, line)
			break
		}
		o.got = append(o.got, p.Position)
	case "ok", "error":
		m.answered(p.ID, p.pushed, line)
	default:
		m.t.Errorf("%s: %s", m.name, line)
	}
	return p.pushed
}

func (m *member) assigned(partition int, start int64) {
	if m.owned[partition] != nil {
		m.t.Errorf("%s: partition %d is assigned twice", m.name, partition)
	}
	for _, o := range m.had {
		o.unsure = o.unsure || o.partition == partition
	}
	o := &ownership{partition: partition, start: start, committed: start, open: true, over: start < m.committed[partition]}
	m.owned[partition] = o
	m.had, m.all = append(m.had, o), append(m.all, o)
}

func (m *member) answered(id any, p pushed, line []byte) {
	n, number := id.(float64)
	switch o := m.asked[int(n)]; {
	case id == "leave":
		m.left = true
	case id == "join" && p.Code == "unavailable": // it is cut off
		m.left = true
	case id == "join" && p.Code == "ended": // it has left before it was a member; the answer to that follows
	case !number || o == nil:
		if p.Type != "ok" {
			m.t.Errorf("%s: %s", m.name, line)
		}
	case p.Type == "ok":
		at := m.at[int(n)]
		if p.Position < at {
			m.t.Errorf("%s: %s, and %d was committed", m.name, line, at)
		}
		if o.over && !o.unsure {
			m.t.Errorf("%s: %s, and it was assigned partition %d after %d when more was committed", m.name, line, o.partition, o.start)
		}
		o.committed = max(o.committed, at)
		m.history.committed[o.partition] = max(m.history.committed[o.partition], at)
	case p.Code == "fenced":
		m.fenced++
	case p.Code != "unavailable" && p.Code != "outcome_unknown" && p.Code != "not_stored" && p.Code != "not_found":
		m.t.Errorf("%s: %s", m.name, line)
	}
}

// check checks the whole history against what is stored: by partition, all positions.
func (h *history) check(stored map[int][]int64) {
	owners := make(map[int][]*ownership)
	came := make(map[int]map[int64]bool)
	for n := range stored {
		came[n] = make(map[int64]bool)
	}
	for _, o := range h.all {
		after, _ := slices.BinarySearch(stored[o.partition], o.start+1)
		if want := stored[o.partition][after:min(after+len(o.got), len(stored[o.partition]))]; !slices.Equal(o.got, want) {
			h.t.Errorf("partition %d after %d: got %v, want %v", o.partition, o.start, o.got, want)
		}
		for _, position := range o.got {
			came[o.partition][position] = true
		}
		if !o.unsure && o.committed > o.start {
			owners[o.partition] = append(owners[o.partition], o)
		}
	}
	for n, positions := range stored {
		for _, position := range positions {
			if !came[n][position] {
				h.t.Errorf("partition %d: the message at %d came to nobody", n, position)
			}
		}
		// Owners follow each other, so what one has committed lies before the start of the next.
		slices.SortFunc(owners[n], func(a, b *ownership) int { return cmp.Compare(a.start, b.start) })
		for i := 1; i < len(owners[n]); i++ {
			if before, o := owners[n][i-1], owners[n][i]; o.start < before.committed {
				h.t.Errorf("partition %d: two owners have committed %d to %d and %d to %d", n, before.start, before.committed, o.start, o.committed)
			}
		}
	}
}

// TestShare_History: members of a group come, commit, stall, leave and die, while messages are published, and a server is cut off from PostgreSQL for longer than a
// lease. Each owner gets the messages after the offset without gap, no message is left out, what was committed never comes
// again, and nobody commits what belongs to another owner.
func TestShare_History(t *testing.T) {
	t.Parallel()
	const partitions = 5
	for seed := range pgtest.Seeds() {
		db := migrated.Open(t)
		h := &history{t: t, servers: []database{serveDatabase(t, db, nil), serveDatabase(t, db, nil)}, committed: make(map[int]int64)}
		h.servers[0].make(t, "s", partitions)
		var members sync.WaitGroup
		for n := range 5 {
			random := rand.New(rand.NewPCG(seed, uint64(n)))
			members.Go(func() { h.live(fmt.Sprint("m", n), random) })
		}
		published := 0
		for n := range 16 {
			publishKeys(t, h.servers[0].addr, published, published+40)
			published += 40
			switch n {
			case 4:
				h.servers[1].cutting.cut()
			case 12:
				h.servers[1].cutting.mend()
			}
			time.Sleep(groupLease / 8)
		}
		h.stop.Store(true)
		members.Wait()
		stored := make(map[int][]int64)
		for n, head := range h.servers[0].heads(t, partitions) {
			for position := range head {
				stored[n] = append(stored[n], position+1)
			}
		}
		h.rest(stored)
		h.check(stored)
		t.Logf("%d ownerships, %d commits were fenced", len(h.all), h.fenced)
	}
}

// rest reads what is left, as the only member.
func (h *history) rest(stored map[int][]int64) {
	conn := connect(h.t, h.servers[0].addr)
	m := &member{history: h, name: "last", conn: conn.Conn, owned: make(map[int]*ownership)}
	m.say(`{"type":"subscribe","id":"join","stream":"s","group":"g","share":true}`)
	for !h.t.Failed() {
		reached := 0
		for n, o := range m.owned {
			last := stored[n][len(stored[n])-1]
			if o.start == last || len(o.got) > 0 && o.got[len(o.got)-1] == last {
				reached++
			}
		}
		if reached == len(stored) {
			return
		}
		m.take([]byte(conn.next()))
	}
}
