package room

import (
	"math"
	"runtime"
	"sync"
	"time"

	"github.com/tidewire/tidewire/websocket"
)

const (
	// minPause and maxPause bound the pause between two rounds, in which
	// messages gather. Within these bounds, the pause is a third of the duration
	// of the last round: the busier the flusher is, the more messages a write
	// holds (docs/benchmarks/chat.md has the cost of other fractions). An
	// otherwise idle process wakes from the shortest pause about a millisecond
	// late; an exact kernel timer costs more CPU time than it saves latency.
	//
	// A room that spans several nodes rests for three quarters instead: each node has a part of the members, so its rounds are shorter, and with the
	// same fraction all nodes together would write as many times more often as there are nodes. The outlet does not wait for that: it is
	// served every outletBlocks blocks of members, and every outletPause during a pause (docs/benchmarks/cluster.md).
	minPause     = 300 * time.Microsecond
	maxPause     = 5 * time.Millisecond
	outletBlocks = 4
	outletPause  = time.Millisecond
	// retryPause is after how long members that lag are tried again.
	retryPause = 20 * time.Millisecond
	// shareSize is how many members justify another goroutine: writing to them
	// takes one to two milliseconds.
	shareSize = 300
	// blockSize is how many members are served between two looks at the log:
	// members at the end of a round get messages published during it.
	blockSize = 32
)

// run serves the room's members in rounds, and ends the room when it has none.
func (r *Room) run() {
	timer := stoppedTimer()
	defer timer.Stop()
	f := round{room: r}
	var next time.Time // before which no round begins
	for !r.ended() {
		var retry <-chan time.Time
		if again := f.again(); again > 0 {
			timer.Reset(again)
			retry = timer.C
		}
		select {
		case <-r.wake:
		case <-retry:
		}
		r.pause(timer, next)
		start := time.Now()
		f.flush(start)
		end := time.Now()
		next = end.Add(min(max(r.rest(end.Sub(start)), minPause), maxPause))
	}
}

// again is after how long the next round has to begin, although nothing is published. It is 0 if there is no such need.
func (f *round) again() time.Duration {
	pause := time.Duration(0)
	if f.lagging > 0 {
		pause = retryPause
	}
	if f.packer.waits {
		if left := max(time.Until(f.packer.next), minPause); pause == 0 || left < pause {
			pause = left
		}
	}
	return pause
}

// rest is how long the flusher rests after a round of that duration, within the bounds.
func (r *Room) rest(took time.Duration) time.Duration {
	if r.outlet.to != nil {
		return took * 3 / 4
	}
	return took / 3
}

// pause waits until a time, and serves the outlet meanwhile.
func (r *Room) pause(timer *time.Timer, until time.Time) {
	for left := time.Until(until); left > 0; left = time.Until(until) {
		if r.outlet.to != nil {
			r.outlet.serve(r)
			left = min(left, outletPause)
		}
		timer.Reset(left)
		<-timer.C
	}
}

// round visits all members once. Its memory is reused for the next round.
type round struct {
	room    *Room
	members []*Member
	head    int64 // of the log when the members were listed: later members begin at it or after
	shares  []share
	packer  packer
	lagging int // members that have not received everything
}

// share is a part of the members, visited by one goroutine, and the result of
// that.
type share struct {
	room      *Room
	packed    *[forms][]pack
	ready     [forms]int64 // members of each form get the log up to there; of plain ones, head counts
	leads     bool         // it serves the outlet meanwhile
	now       time.Time
	members   []*Member
	oldest    int64 // lowest offset of a member
	delivered int
	missed    int
	lagging   int

	// The log at the last look.
	head   int64
	chunks []chunk

	// A cache of the last result of count: nearly all members get the same
	// frames.
	countedAt, countedTo int64
	counted              int
}

// chunk is bytes of the log from an offset on.
type chunk struct {
	start int64
	bytes []byte
}

// flush visits every member once.
func (f *round) flush(now time.Time) {
	f.begin(now)
	f.serve()
	f.end()
}

// begin lists the members.
func (f *round) begin(now time.Time) {
	f.room.mu.Lock()
	clear(f.members)
	f.members = append(f.members[:0], f.room.members...)
	f.head = f.room.log.head
	f.packer.look(f.room)
	f.room.mu.Unlock()
	f.packer.pack(f.room.hub.cfg.Compression, now)
	f.split(now)
}

// serve visits them, after other nodes, which have the longer way.
func (f *round) serve() {
	f.room.outlet.serve(f.room)
	f.room.tell()
	var others sync.WaitGroup
	for i := range f.shares[1:] {
		others.Go(f.shares[i+1].serve)
	}
	f.shares[0].serve()
	others.Wait()
}

// end sums the results, and releases the part of the log that all members have
// received, including members that joined meanwhile.
func (f *round) end() {
	oldest, delivered, missed := f.head, 0, 0
	f.lagging = 0
	for i := range f.shares {
		s := &f.shares[i]
		oldest = min(oldest, s.oldest)
		delivered += s.delivered
		missed += s.missed
		f.lagging += s.lagging
	}
	hub := f.room.hub
	hub.deliveries.Add(uint64(delivered))
	hub.missed.Add(uint64(missed))
	f.room.mu.Lock()
	defer f.room.mu.Unlock()
	f.room.log.release(oldest)
	f.packer.release(oldest)
}

// split divides the members among at most half of the processors: the others
// are needed to read the members' messages.
func (f *round) split(now time.Time) {
	n := min(max(len(f.members)/shareSize, 1), max(runtime.GOMAXPROCS(0)/2, 1))
	for len(f.shares) < n {
		f.shares = append(f.shares, share{})
	}
	f.shares = f.shares[:n]
	for i := range n {
		part := f.members[i*len(f.members)/n : (i+1)*len(f.members)/n]
		f.shares[i] = share{room: f.room, packed: &f.packer.packs, ready: f.packer.ready, leads: i == 0, now: now, members: part, oldest: math.MaxInt64, chunks: f.shares[i].chunks[:0], countedAt: -1}
	}
}

// look takes a snapshot of the log, and of the own messages of a block's
// members. Bytes of the log never change once written, so only the snapshot
// needs the lock.
func (s *share) look(block []*Member) {
	r := s.room
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range block {
		m.waits = m.held
		if len(m.own) > 0 {
			m.skip = append(m.skip, m.own...)
			m.own = m.own[:0]
		}
	}
	s.lookAt(&r.log)
}

func (s *share) lookAt(l *log) {
	s.head = l.head
	s.chunks = s.chunks[:0]
	for _, seg := range l.segs {
		s.chunks = append(s.chunks, chunk{seg.start, (*seg.buf)[:len(*seg.buf):len(*seg.buf)]})
	}
}

func (s *share) serve() {
	for i, m := range s.members {
		if s.leads && i%(outletBlocks*blockSize) == 0 && i > 0 {
			s.room.outlet.serve(s.room)
		}
		if i%blockSize == 0 {
			s.look(s.members[i:min(i+blockSize, len(s.members))])
		}
		s.offer(m)
		if m.pos < s.end(m) || m.lagging {
			s.lagging++
		}
		s.oldest = min(s.oldest, m.pos)
	}
}

// offer sends m everything after its offset, as far as its socket takes it.
func (s *share) offer(m *Member) {
	if m.left.Load() { // its connection may have rejoined the room as another member
		m.pos, m.skip = s.head, m.skip[:0]
		return
	}
	if m.lagging && (m.waits || !s.caughtUp(m)) {
		s.skipAhead(m)
		return
	}
	from, end := m.pos, s.end(m)
	if m.pos < end && !m.waits && !m.full(s.room.hub.cfg.MaxLagBytes) {
		s.write(m)
	}
	switch {
	case m.pos >= end:
		m.blocked = time.Time{}
		return
	case m.pos > from || m.blocked.IsZero():
		m.blocked = s.now
	}
	s.checkLag(m)
}

// write writes everything except m's own messages to m's socket, until the
// socket takes no more.
func (s *share) write(m *Member) {
	for m.pos < s.end(m) {
		part, whole := s.nextFor(m)
		if len(part) == 0 {
			continue
		}
		n, err := m.conn.WriteShared(part)
		if err != nil {
			m.pos, m.skip = s.head, m.skip[:0] // the connection has ended, and m will leave
			return
		}
		if n == 0 {
			return
		}
		m.unseen += int64(n)
		if whole != nil { // one frame, so all of it was taken
			s.delivered += whole.messages
			m.conn.CountShared(1)
			m.pos = whole.end
			continue
		}
		count := s.count(m.pos, part[:n])
		s.delivered += count
		m.conn.CountShared(count)
		m.pos += int64(n)
		if n < len(part) {
			return
		}
	}
}

// next returns the next bytes for a reader at pos, up to what it skips. If it skips what begins at pos, next moves pos over that, and returns nothing.
func (s *share) next(pos *int64, skip *[]span) []byte {
	if len(*skip) == 0 {
		return s.from(*pos)
	}
	first := (*skip)[0]
	if first.start == *pos {
		*pos = first.end
		*skip = (*skip)[:copy(*skip, (*skip)[1:])]
		return nil
	}
	part := s.from(*pos)
	return part[:min(int64(len(part)), first.start-*pos)]
}

// from returns the bytes from an offset to the end of their segment.
func (s *share) from(offset int64) []byte {
	for i := len(s.chunks) - 1; i >= 0; i-- {
		if c := s.chunks[i]; offset >= c.start {
			return c.bytes[offset-c.start:]
		}
	}
	return nil
}

// count returns the number of frames in b, which begins at an offset.
func (s *share) count(offset int64, b []byte) int {
	if end := offset + int64(len(b)); offset != s.countedAt || end != s.countedTo {
		s.countedAt, s.countedTo, s.counted = offset, end, frames(b)
	}
	return s.counted
}

// frames returns the number of frames in b.
func frames(b []byte) (n int) {
	for len(b) > 0 {
		h, size, err := websocket.ParseHeader(b)
		if err != nil || size == 0 {
			return n
		}
		b = b[size+int(h.Length):]
		n++
	}
	return n
}
