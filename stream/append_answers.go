package stream

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// answer is what is called back, and for the Hub.
type answer struct {
	calls []call
	page  tailPage // the messages, or none: they are to be read
}

// maxAnswers is how many batches of an Appender that rounds have stored may wait to be called
// back; then it writes alone, which waits for that.
const maxAnswers = 16

// answers are the batches of an Appender that are settled, in the order in which they are to
// be called back. One goroutine at a time calls back.
type answers struct {
	mu      sync.Mutex
	pending []answer
	running bool          // somebody calls back, or is about to
	room    chan struct{} // closed when one is taken; nil while nobody waits
}

// put adds one, unless limit are pending. If start is true, the caller has to see to it that
// somebody calls back.
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

// take returns the first one, or false: then nobody calls back any more.
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
// in the order in which the calls came. So the requests of a client, which come one after the
// other, are answered one after the other, and few writes to its socket take them all.
// Whenever callbackPatience has passed, more goroutines go on with the rest.
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

// help starts so many goroutines, and later twice as many if there is still something to do.
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

// callBack has calls called back, after those before them, and waits while the calls of
// two batches are to be called back.
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
			a.cfg.Hub.committed(a.stream, one.page)
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

// fewCalls is up to how many calls the memory of a batch is for any batch, and not kept for
// the Appender's next one.
const fewCalls = 16

// callMemory is memory for the calls of small batches.
var callMemory = sync.Pool{New: func() any { return new([]call) }}

// giveBack has the memory of calls used again. The callbacks are not ours to keep.
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
