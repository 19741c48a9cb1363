package stream

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// answer is one settled batch: the calls to be called back, and the page for the Hub.
type answer struct {
	calls []call
	page  tailPage // the messages, or empty: then subscribers read them from PostgreSQL
}

// maxAnswers bounds the batches of an Appender that rounds have stored and whose callbacks
// have not begun. Beyond it the Appender writes alone, which waits for the callbacks.
const maxAnswers = 16

// answers are the batches of an Appender that are settled, in the order in which they are to
// be called back. One goroutine at a time calls back.
type answers struct {
	mu      sync.Mutex
	pending []answer
	running bool          // a goroutine calls back, or is about to
	room    chan struct{} // closed when one is taken; nil while nobody waits
}

// put adds one, unless limit are pending. If start is true, the caller has to start calling
// back.
func (q *answers) put(one answer, limit int) (added, start bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.pending) >= limit {
		return false, false
	}
	q.pending = append(q.pending, one)
	start = !q.running
	q.running = true
	return true, start
}

// wait returns a channel that is closed when one is taken, or nil if none is pending.
func (q *answers) wait() <-chan struct{} {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.pending) == 0 {
		return nil
	}
	if q.room == nil {
		q.room = make(chan struct{})
	}
	return q.room
}

// take returns the first one, or false; then the goroutine that calls back ends.
func (q *answers) take() (one answer, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.room != nil {
		close(q.room)
		q.room = nil
	}
	n := len(q.pending)
	if n == 0 {
		q.running = false
		if cap(q.pending) > 1 {
			q.pending = nil
		}
		return one, false
	}
	one = q.pending[0]
	copy(q.pending, q.pending[1:])
	q.pending[n-1] = answer{}
	q.pending = q.pending[:n-1]
	return one, true
}

// callbackPatience is for how long the callbacks of one Appender may hold up those of others
// in the same transaction.
const callbackPatience = 5 * time.Millisecond

// callbacks calls back what one transaction of many streams has stored, in one goroutine and
// in the order in which the calls came. So consecutive requests of a client are answered
// consecutively, in few writes to its socket. Each time callbackPatience passes, more
// goroutines help with the rest.
type callbacks struct {
	of   []answered
	next atomic.Int64
}

// answered is an Appender that is to call back.
type answered struct {
	*Appender
	order int // in which its call came
}

func callBackAll(of []answered) {
	if len(of) == 0 {
		return
	}
	slices.SortFunc(of, func(a, b answered) int { return cmp.Compare(a.order, b.order) })
	(&callbacks{of: of}).help(1)
}

// help starts this number of goroutines, and after callbackPatience twice as many if
// callbacks remain.
func (c *callbacks) help(goroutines int) {
	for range goroutines {
		go c.run()
	}
	time.AfterFunc(callbackPatience, func() {
		if c.next.Load() < int64(len(c.of)) {
			c.help(2 * goroutines)
		}
	})
}

func (c *callbacks) run() {
	for {
		i := c.next.Add(1) - 1
		if i >= int64(len(c.of)) {
			return
		}
		c.of[i].answer()
	}
}

// callBack queues the callbacks of a batch after those of earlier batches. It waits
// while the previous batch has not begun its callbacks.
func (a *Appender) callBack(one answer) {
	for {
		added, start := a.answers.put(one, 1)
		if start {
			a.helpers.Add(1)
			go a.answer()
		}
		if added {
			return
		}
		if room := a.answers.wait(); room != nil {
			<-room
		}
	}
}

// answer calls back, batch after batch, until there is none.
func (a *Appender) answer() {
	defer a.helpers.Done()
	for {
		one, ok := a.answers.take()
		if !ok {
			return
		}
		a.answerBatch(one)
	}
}

func (a *Appender) answerBatch(one answer) {
	calls, last := one.calls, int64(0)
	for i := range calls {
		c := &calls[i]
		c.answer()
		if c.err == nil && !c.repeated {
			last = c.first + int64(c.rows) - 1
		}
	}
	if last > 0 {
		if a.cfg.Hub != nil {
			a.cfg.Hub.committed(a.stream, one.page, last)
		}
		a.cfg.OnCommit(last)
	}
	a.giveBack(calls)
}

// answer calls back.
func (c *call) answer() {
	if c.err != nil {
		c.done(Appended{}, c.err)
		return
	}
	c.done(Appended{First: c.first, Last: c.first + int64(c.rows) - 1, Duplicate: c.repeated}, nil)
}

// fewCalls is the largest capacity of a calls slice that goes to the shared pool, for any
// Appender; a larger one is kept for this Appender's next batch.
const fewCalls = 16

// callMemory is memory for the calls of small batches.
var callMemory = sync.Pool{New: func() any { return new([]call) }}

// giveBack releases the memory of calls for reuse. It clears them, so that no callback is
// retained.
func (a *Appender) giveBack(calls []call) {
	clear(calls)
	calls = calls[:0]
	if cap(calls) <= fewCalls {
		callMemory.Put(&calls)
		return
	}
	if s := a.solo.Load(); s != nil {
		select {
		case s.spare <- calls:
		default:
		}
	}
}
