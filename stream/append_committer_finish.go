package stream

import "slices"

// finish takes in what became of entries. An entry that was left out goes back to its
// Appender.
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

// answer hands calls over to be called back, after those of before. If it returns true, the
// caller has to see to it that somebody does.
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
	// Its callbacks take their time.
	c.hand(a, handed{answer: one, settled: true})
	return false
}

// giveUp has the calls of entries told that nobody knows whether they are stored.
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

// handBack has an Appender see to an entry, and after it to what has gathered since.
func (c *committer) handBack(a *Appender, open *round, h handed) {
	c.hand(a, h)
	if next := a.openEntry(open); next != nil {
		c.withdraw(open, next)
		c.hand(a, handed{rows: &next.rows, answer: answer{calls: next.calls}})
	}
}

// hand gives an Appender something to do, before all that comes to it from now on.
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

// recycle keeps the entry for another one. The calls are their Appender's.
func (e *entry) recycle() {
	e.rows.Reset(keepEntry)
	*e = entry{rows: e.rows}
	entryMemory.Put(e)
}

// takeBack gives an Appender the calls that are not settled: it was told to give up.
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
