package scenario

import (
	"sync"
	"time"

	"github.com/tidewire/tidewire/internal/bench"
)

// phase is a phase of a run. The measured phase is between a warm-up and the
// time in which the readers catch up.
type phase int

const (
	warmUp phase = iota
	measured
	drain
	phases
)

// tally counts what happened in one phase.
type tally struct {
	Count    int              `json:"count"` // messages written, or read and acknowledged
	Errors   int              `json:"errors"`
	Latency  *bench.Histogram `json:"latency"` // of a write or a read
	EndToEnd *bench.Histogram `json:"end_to_end,omitempty"`
	Late     *bench.Histogram `json:"late,omitempty"` // how much later than due it was sent
}

func newTally() *tally {
	return &tally{Latency: bench.NewHistogram(), EndToEnd: bench.NewHistogram(), Late: bench.NewHistogram()}
}

func (t *tally) merge(other *tally) {
	t.Count += other.Count
	t.Errors += other.Errors
	t.Latency.Merge(other.Latency)
	t.EndToEnd.Merge(other.EndToEnd)
	t.Late.Merge(other.Late)
}

// meter counts what one writer or reader does. Its lock is almost never
// contended: other goroutines take it only to change the phase and to report.
type meter struct {
	mu    sync.Mutex
	phase phase
	tally [phases]*tally
	// recent has the latencies since the last report: for a reader, from end to
	// end.
	recent *bench.Histogram
}

func newMeter() *meter {
	m := &meter{recent: bench.NewHistogram()}
	for i := range m.tally {
		m.tally[i] = newTally()
	}
	return m
}

// wrote records the answer to a written message.
func (m *meter) wrote(took time.Duration, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.tally[m.phase]
	if err != nil {
		t.Errors++
		return
	}
	t.Count++
	t.Latency.Record(took)
	m.recent.Record(took)
}

// sent records how much later than due a message was sent.
func (m *meter) sent(late time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tally[m.phase].Late.Record(late)
}

// read records an acknowledged batch: the time from the request for messages to
// the acknowledgement, and the age of each message when it arrived.
func (m *meter) read(took time.Duration, ages []time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.tally[m.phase]
	t.Count += len(ages)
	for _, age := range ages {
		t.Latency.Record(took)
		t.EndToEnd.Record(age)
		m.recent.Record(age)
	}
}

// meters are the meters of a worker process.
type meters []*meter

func newMeters(n int) meters {
	all := make(meters, n)
	for i := range all {
		all[i] = newMeter()
	}
	return all
}

func (all meters) enter(p phase) {
	for _, m := range all {
		m.mu.Lock()
		m.phase = p
		m.mu.Unlock()
	}
}

// counts adds up all phases.
func (all meters) counts() (count, errors int) {
	for _, m := range all {
		m.mu.Lock()
		for _, t := range m.tally {
			count += t.Count
			errors += t.Errors
		}
		m.mu.Unlock()
	}
	return count, errors
}

// takeRecent merges the latencies since the last call.
func (all meters) takeRecent() *bench.Histogram {
	sum := bench.NewHistogram()
	for _, m := range all {
		m.mu.Lock()
		sum.Merge(m.recent)
		m.recent.Reset()
		m.mu.Unlock()
	}
	return sum
}

// sum merges the tallies of each phase.
func (all meters) sum() (sum [phases]*tally) {
	for i := range sum {
		sum[i] = newTally()
		for _, m := range all {
			m.mu.Lock()
			sum[i].merge(m.tally[i])
			m.mu.Unlock()
		}
	}
	return sum
}
