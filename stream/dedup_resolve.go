package stream

import (
	"context"
	"fmt"
)

// part is a subset of the calls of a batch, with their rows.
type part struct {
	rows  rowBatch
	calls []call
}

// requestsOf appends the requests of the calls: of those that carry a RequestID, and of unique messages.
func requestsOf(all []request, calls []call) []request {
	row := 0
	for i := range calls {
		for _, id := range []RequestID{calls[i].request, calls[i].unique} {
			if id.Client != "" {
				all = append(all, request{id, row, calls[i].rows})
			}
		}
		row += calls[i].rows
	}
	return all
}

// writeRest handles a batch that was rejected because a request in it is recorded,
// too old, or contained twice. Known requests get their recorded result. The others
// are written. Duplicates within the batch are written last: they are then found as
// recorded, or tried again if the first one was rejected.
//
// If no request is known and none is contained twice, the records were rotated
// between the write and the lookup, and the next write finds the floor, the
// sequence below which requests are too old.
func (a *Appender) writeRest(ctx context.Context, rows *rowBatch, calls []call) {
	found, err := a.writer.find(ctx, rows.requests)
	if err != nil {
		a.settle(calls, 0, a.explain(ctx, err))
		return
	}
	known, fresh, again := sortOut(rows, calls, found)
	a.recordDuplicates(ctx, known)
	n := copy(calls, known)
	m := n + copy(calls[n:], fresh.calls)
	copy(calls[m:], again.calls)
	if n < m {
		a.write(ctx, &fresh.rows, calls[n:m])
	}
	if m < len(calls) {
		a.write(ctx, &again.rows, calls[m:])
	}
}

// sortOut splits the calls into known ones, whose result it notes, fresh ones, and
// those that repeat a fresh one.
func sortOut(rows *rowBatch, calls []call, found map[RequestID]finding) (known []call, fresh, again part) {
	seen := map[RequestID]bool{}
	at := 0
	for _, c := range calls {
		rowsOf := c.rows
		if c.answeredBy(found[c.request]) || c.answeredBy(found[c.unique]) {
			at = rows.skip(at, rowsOf)
			known = append(known, c)
			continue
		}
		to := &fresh
		if seen[c.request] || seen[c.unique] {
			to = &again
		}
		for _, id := range []RequestID{c.request, c.unique} {
			if id.Client != "" {
				seen[id] = true
			}
		}
		to.calls = append(to.calls, c)
		at = to.rows.take(rows, at, c.rows)
	}
	return known, fresh, again
}

// answeredBy notes the result of the call if the record of its request, or of its unique message, has it.
func (c *call) answeredBy(f finding) bool {
	switch {
	case f.tooOld:
		c.err = fmt.Errorf("%w: %d of client %q; continue with sequences higher than all before", ErrSequenceTooOld, c.request.Sequence, c.request.Client)
	case f.first != 0:
		c.first, c.repeated = f.first, true
		if f.count > 0 {
			c.rows = f.count
		}
	default:
		return false
	}
	return true
}

// recordDuplicates records the requests of duplicates of unique messages, so that a repetition gets the same answer
// after the end of the period.
func (a *Appender) recordDuplicates(ctx context.Context, known []call) {
	var of []*call
	var requests []request
	var firsts []int64
	for i := range known {
		if c := &known[i]; c.err == nil && c.unique.Client != "" && c.request.Client != "" {
			of, requests, firsts = append(of, c), append(requests, request{RequestID: c.request}), append(firsts, c.first)
		}
	}
	if len(of) == 0 {
		return
	}
	found, err := a.writer.recordDuplicates(ctx, requests, firsts)
	for _, c := range of {
		if err != nil {
			c.err = a.explain(ctx, err)
		} else {
			c.answeredBy(found[c.request])
		}
	}
}
