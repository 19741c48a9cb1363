package stream

import (
	"context"
	"slices"
	"time"
)

// handed is work that a committer hands back to an Appender. It is done before all
// that was added since.
type handed struct {
	rows    *rowBatch // to be written, or nil
	answer  answer
	settled bool // the outcome of the calls is known; if not, and without rows, the calls get ErrOutcomeUnknown
}

// add adds the messages of a call to a batch: the committer's, with other
// Appenders, or this Appender's own.
func (a *Appender) add(ctx context.Context, msgs []Message, bytes int, c call) error {
	for {
		if !a.alone.Load() {
			added, err := a.committer.Load().add(ctx, a, msgs, bytes, c)
			if added || err != nil {
				return err
			}
		}
		s := a.solo.Load()
		if s == nil {
			continue // it writes through the committer again
		}
		added, err := s.group.AddIf(ctx, nil, len(msgs), bytes, func(b *appendBatch) bool {
			if !a.alone.Load() || a.solo.Load() != s {
				return false
			}
			for i := range msgs {
				b.rows.appendMessage(&msgs[i])
			}
			b.calls = append(b.calls, c)
			return true
		})
		if added || err != nil {
			return err
		}
	}
}

// solitary reports whether the Appender always writes alone, because it has a Linger
// or a fixed write method.
func (a *Appender) solitary() bool { return a.cfg.Linger > 0 || a.cfg.Writer.Method != Auto }

// small reports whether a batch of this size is written together with those of other
// Appenders.
func (a *Appender) small(rows, bytes int) bool {
	return rows < min(a.cfg.Writer.CopyRows, a.cfg.MaxBatch) && bytes < min(a.cfg.Writer.CopyBytes, a.cfg.MaxBatchBytes)
}

const (
	// A table is slow if a write takes at least slowWrite. Its stream is then written
	// alone for slowFor, so that other streams do not wait for it (circuit breaker).
	slowWrite = 100 * time.Millisecond
	slowFor   = time.Minute
	// slowAlone is the same threshold for a batch of any size, including its commit.
	slowAlone = 500 * time.Millisecond
	// maxSlow is how many streams may count as slow at a time. If more seem slow,
	// PostgreSQL itself is slow: a transaction for each stream would make that worse, and
	// prolong it.
	maxSlow = 16
)

// noteSlow notes that the Appender's table is slow. The caller holds the lock.
func (c *committer) noteSlow(a *Appender) {
	if a.isSlow() {
		return
	}
	now := time.Now()
	oldest := &c.slowUntil[c.slows%maxSlow]
	if now.Before(*oldest) {
		return
	}
	*oldest = now.Add(slowFor)
	c.slows++
	a.slowUntil.Store(oldest.UnixNano())
}

func (a *Appender) isSlow() bool {
	until := a.slowUntil.Load()
	return until != 0 && time.Now().UnixNano() < until
}

// rejoin lets the committer write the next messages, if none are left to be written
// alone.
func (a *Appender) rejoin(s *solo) {
	if a.solitary() || !a.alone.Load() || a.work.Err() != nil || a.isSlow() {
		return
	}
	c := a.committer.Load()
	s.group.IfEmpty(func() {
		c.do(func(*round) {
			if len(a.handed) == 0 {
				a.alone.Store(false)
				c.alone--
			}
		})
	})
}

// awaitRounds returns when no round holds an entry of the Appender, or when ctx ends.
func (a *Appender) awaitRounds(ctx context.Context) {
	c := a.committer.Load()
	for c != nil {
		var settled chan struct{}
		c.do(func(*round) {
			if len(a.entries) > 0 && a.settled == nil {
				a.settled = make(chan struct{})
			}
			settled = a.settled
		})
		if settled == nil {
			return
		}
		select {
		case <-settled:
		case <-ctx.Done():
			return
		}
	}
}

// doHanded writes and answers what the committer has handed back. An element stays in the
// list until it is answered, which keeps later batches after it.
func (a *Appender) doHanded() {
	c := a.committer.Load()
	for c != nil {
		var h handed
		found := false
		c.do(func(*round) {
			if found = len(a.handed) > 0; found {
				h = a.handed[0]
			}
		})
		if !found {
			return
		}
		a.writer.on.Release() // callbacks may take their time
		switch {
		case h.settled:
		case h.rows != nil:
			h.answer.page = a.writePage(a.work, h.rows, h.answer.calls)
		default:
			a.settle(h.answer.calls, 0, a.explain(a.work, context.Canceled))
		}
		a.callBack(h.answer)
		c.do(func(*round) { a.handed = slices.Delete(a.handed, 0, 1) })
	}
}

// openEntry returns the Appender's entry in the open round, or nil. The caller holds the
// committer's lock, as for removeEntry.
func (a *Appender) openEntry(open *round) *entry {
	if n := len(a.entries); n > 0 && a.entries[n-1].in == open {
		return a.entries[n-1]
	}
	return nil
}

func (a *Appender) removeEntry(e *entry) {
	a.entries = slices.DeleteFunc(a.entries, func(o *entry) bool { return o == e })
	if len(a.entries) == 0 && a.settled != nil {
		close(a.settled)
		a.settled = nil
	}
}
