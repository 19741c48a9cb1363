package ingest

import (
	"log/slog"
	"sync/atomic"
	"time"
)

// Stats counts since the start.
type Stats struct {
	Received      uint64 // messages submitted
	ReceivedBytes uint64 // their payloads
	Committed     uint64 // messages committed
	Failed        uint64 // messages that could not be stored
	Abandoned     uint64 // messages given up without an answer of PostgreSQL, which may be stored
	Inflight      int64  // messages submitted and not yet answered
}

// pause is how long nothing must have arrived until a burst of traffic counts
// as ended and is summarised in the log.
const pause = time.Second

// stats counts, and keeps the times of the current burst, which begins with the
// first message after a pause.
type stats struct {
	receivedRows, receivedBytes, committedRows, refusedRows, failedRows, abandonedRows atomic.Uint64

	first atomic.Int64 // when the burst's first message came, ns since start; 0: no burst
	last  atomic.Int64 // when something was last received or committed
	start time.Time
}

func newStats() *stats { return &stats{start: time.Now()} }

func (s *stats) received(payloads [][]byte) {
	bytes := 0
	for _, p := range payloads {
		bytes += len(p)
	}
	now := int64(time.Since(s.start))
	if s.first.Load() == 0 {
		s.first.CompareAndSwap(0, now)
	}
	s.last.Store(now)
	s.receivedRows.Add(uint64(len(payloads)))
	s.receivedBytes.Add(uint64(bytes))
}

// refused counts messages that were received and not accepted.
func (s *stats) refused(rows int) { s.refusedRows.Add(uint64(rows)) }

// failed counts messages that were accepted and could not be stored.
func (s *stats) failed(rows int) { s.failedRows.Add(uint64(rows)) }

// abandoned counts messages that were accepted and may be stored or not.
func (s *stats) abandoned(rows int) { s.abandonedRows.Add(uint64(rows)) }

func (s *stats) committed(rows int) {
	s.committedRows.Add(uint64(rows))
	s.last.Store(int64(time.Since(s.start)))
}

func (s *stats) snapshot() Stats {
	committed, refused := s.committedRows.Load(), s.refusedRows.Load()
	failed, abandoned := s.failedRows.Load(), s.abandonedRows.Load()
	received := s.receivedRows.Load() // read last, so that it is never below the sum of the others
	return Stats{
		Received: received, ReceivedBytes: s.receivedBytes.Load(), Committed: committed, Failed: failed, Abandoned: abandoned,
		Inflight: int64(received - refused - committed - failed - abandoned),
	}
}

// report logs each burst after its end, and the last one when done is closed.
func (s *stats) report(done <-chan struct{}, log *slog.Logger) {
	tick := time.NewTicker(pause / 4)
	defer tick.Stop()
	var reported uint64
	for running := true; running; {
		select {
		case <-tick.C:
			idle := time.Since(s.start) - time.Duration(s.last.Load())
			if idle < pause || s.snapshot().Inflight > 0 {
				continue
			}
		case <-done:
			running = false
		}
		first := s.first.Swap(0)
		rows := s.committedRows.Load() - reported
		if first == 0 || rows == 0 {
			continue
		}
		reported += rows
		took := time.Duration(s.last.Load() - first)
		log.Info("ingested", "rows", rows, "took", took.Round(time.Microsecond),
			"msg/s", int64(float64(rows)/max(took.Seconds(), 1e-9)))
	}
}
