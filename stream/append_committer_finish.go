package stream

import "slices"

// finish notes the outcome of the entries. An entry that was not stored goes back to
// its Appender.
func (c *committer) finish(entries []*entry, got stored) {
	var starts []answered
	c.do(func(open *round) {
		for i, e := range entries {
			if e.taken {
				continue
			}
			a := e.of
			if i == got.slow && got.took >= slowWrite {
				c.noteSlow(a)
			}
			a.removeEntry(e)
			if got.firsts[i] == 0 {
				c.handBack(a, open, handed{rows: &e.rows, answer: answer{calls: e.calls}})
				continue
			}
			a.settle(e.calls, got.firsts[i], nil)
			a.stream.storage.stored(got.firsts[i], e.rows.Len())
			e.rows.First, e.rows.at = got.firsts[i], got.at
			if len(e.rows.requests) > 0 {
				a.noteRequests()
			}
			if c.answer(a, answer{e.calls, a.page(&e.rows)}) {
				starts = append(starts, answered{a, e.order})
			}
			e.recycle()
		}
	})
	callBackAll(starts)
}

// answer queues the callbacks of a batch after those of earlier batches. If it returns
// true, the caller has to start calling back.
func (c *committer) answer(a *Appender, one answer) (start bool) {
	if len(a.handed) == 0 {
		added, start := a.answers.put(one, maxAnswers)
		if start {
			a.helpers.Add(1)
		}
		if added {
			return start
		}
	}
	// The Appender's callbacks are slow.
	c.hand(a, handed{answer: one, settled: true})
	return false
}

// giveUp ends the calls of the entries with ErrOutcomeUnknown.
func (c *committer) giveUp(entries []*entry) {
	c.do(func(open *round) {
		for _, e := range entries {
			if !e.taken {
				e.of.removeEntry(e)
				c.handBack(e.of, open, handed{answer: answer{calls: e.calls}})
			}
		}
	})
}

// handBack gives work for one entry back to its Appender, and then the Appender's
// entry in the open round.
func (c *committer) handBack(a *Appender, open *round, h handed) {
	c.hand(a, h)
	if next := a.openEntry(open); next != nil {
		c.withdraw(open, next)
		c.hand(a, handed{rows: &next.rows, answer: answer{calls: next.calls}})
	}
}

// hand queues work for an Appender, before all messages that are added from now on.
func (c *committer) hand(a *Appender, h handed) {
	c.setAlone(a)
	a.handed = append(a.handed, h)
	if s := a.solo.Load(); s != nil {
		s.group.Wake()
	}
}

// withdraw takes an entry out of the open round.
func (c *committer) withdraw(open *round, e *entry) {
	open.entries = slices.DeleteFunc(open.entries, func(o *entry) bool { return o == e })
	e.of.removeEntry(e)
	c.withdrawnRows += e.rows.Len()
	c.withdrawnBytes += e.bytes
}

// recycle returns the entry to the pool. The memory of its calls belongs to the
// Appender.
func (e *entry) recycle() {
	e.rows.Reset(keepEntry)
	*e = entry{rows: e.rows}
	entryMemory.Put(e)
}

// takeBack gives an abandoned Appender the calls whose outcome is not known yet.
func (c *committer) takeBack(a *Appender) {
	c.do(func(open *round) {
		for _, e := range slices.Clone(a.entries) {
			e.taken = true
			if e.in == open {
				c.withdraw(open, e)
			} else {
				a.removeEntry(e)
			}
			c.hand(a, handed{answer: answer{calls: e.calls}})
		}
	})
}
