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

// requestsOf appends the requests of the calls that carry a RequestID.
func requestsOf(all []request, calls []call) []request {
	row := 0
	for i := range calls {
		if calls[i].request.Client != "" {
			all = append(all, request{calls[i].request, row, calls[i].rows})
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
	seen := make(map[RequestID]bool)
	at := 0
	for _, c := range calls {
		f := found[c.request]
		to := &fresh
		switch {
		case c.request.Client == "":
		case f.tooOld:
			c.err = fmt.Errorf("%w: %d of client %q; continue with sequences higher than all before", ErrSequenceTooOld, c.request.Sequence, c.request.Client)
			to = nil
		case f.first != 0:
			c.first, c.repeated = f.first, true
			to = nil
		case seen[c.request]:
			to = &again
		default:
			seen[c.request] = true
		}
		if to == nil {
			at = rows.skip(at, c.rows)
			if f.count > 0 {
				c.rows = f.count
			}
			known = append(known, c)
			continue
		}
		to.calls = append(to.calls, c)
		at = to.rows.take(rows, at, c.rows)
	}
	return known, fresh, again
}
