package stream

import (
	"context"
	"fmt"
)

// part is some of the calls of a batch, with their rows.
type part struct {
	rows  rowBatch
	calls []call
}

// requestsOf appends the requests of the calls that are a client's.
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

// writeRest deals with a batch that was refused because of requests in it that
// are recorded, or too old, or there twice. Those that are known are answered;
// the rest is written, and what was there twice comes after that, to be found
// recorded, or looked at anew if the first of them was refused.
//
// If nothing is known and nothing was there twice, the records were rotated
// between the two looks, and the next one finds the floor.
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

// sortOut splits the calls: those with an answer, which it notes; the others;
// and what repeats one of these.
func sortOut(rows *rowBatch, calls []call, found map[RequestID]finding) (known []call, fresh, again part) {
	seen := make(map[RequestID]bool)
	at := 0
	for _, c := range calls {
		f := found[c.request]
		to := &fresh
		switch {
		case c.request.Client == "":
		case f.tooOld:
			c.err = fmt.Errorf("%w: %d of client %q; go on with higher ones than all before", ErrSequenceTooOld, c.request.Sequence, c.request.Client)
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
