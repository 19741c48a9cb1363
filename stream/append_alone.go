package stream

import (
	"context"
	"slices"
	"time"
)

// handed is what a committer leaves to an Appender. It comes before all that gathers
// meanwhile.
type handed struct {
	rows    *rowBatch // to be written, or nil
	answer  answer
	settled bool // the calls are; else, without rows, they are given up
}

// add has the messages of a call gather: with those of others for the committer, or
// alone.
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
			continue // it writes with others again
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

// solitary reports whether the Appender always writes alone: it is to wait longer than
// others, or in a way of its own.
func (a *Appender) solitary() bool { return a.cfg.Linger > 0 || a.cfg.Writer.Method != Auto }

// small reports whether so much is written together with what others have.
func (a *Appender) small(rows, bytes int) bool {
	return rows < min(a.cfg.Writer.CopyRows, a.cfg.MaxBatch) && bytes < min(a.cfg.Writer.CopyBytes, a.cfg.MaxBatchBytes)
}

const (
	// slowWrite is from when on a table is slow, and slowFor for how long its stream is
	// written to alone then, so that others do not wait for it.
	slowWrite = 100 * time.Millisecond
	slowFor   = time.Minute
	// slowAlone is the same for a batch of any size, with its commit.
	slowAlone = 500 * time.Millisecond
	// maxSlow is how many streams may be slow at a time. If more seem so, PostgreSQL is: a
	// transaction for each would make that worse, and so keep it so.
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

// rejoin has the next messages written together with those of others, if nothing is to
// be written alone before.
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

// awaitRounds returns when no round has anything of the Appender, or ctx ends.
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
// list until it is answered: what comes meanwhile is to come after it.
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
