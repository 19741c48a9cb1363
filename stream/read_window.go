package stream

import (
	"fmt"
	"math"
	"strconv"

	"github.com/jackc/pgx/v5"
)

// window is the part of a stream that one query looks into: the positions
// after position after, up to to. Without an upper bound PostgreSQL would plan for, and
// open, every segment after after, which takes milliseconds if there are
// hundreds, for a read that needs one or two.
type window struct {
	after, to int64
	width     int64 // to begin with
	reserved  int64 // no message that the query could see has a higher position
	history   int64 // the base of the history that goes on
	widened   bool
	back      bool // its tables were not there: it is looked for in the shared one
	moved     bool // the stream has tables of its own, and was looked for in the shared one
}

// minWindow is the least positions of a window: some may be gaps.
const minWindow = 1000

// newWindow begins after position after, and is as wide as limit messages
// without gaps.
func newWindow(after int64, limit int) window {
	after = max(after, 0)
	width := max(int64(limit), minWindow)
	return window{after: after, to: beyond(after, width), width: width}
}

// widen widens a window that held nothing: a large gap takes a few queries. It
// begins where it did, because what it held nothing of may have been under way,
// and is there when the next query sees what was committed after it.
func (w *window) widen() {
	if w.moved { // nothing was looked into
		w.moved, w.to = false, beyond(w.after, w.width)
		return
	}
	w.widened = true
	w.to = beyond(w.after, 16*min(w.to-w.after, math.MaxInt64/16))
}

// beyond returns the position n after another, or the highest there is.
func beyond(position, n int64) int64 {
	if position > math.MaxInt64-n {
		return math.MaxInt64
	}
	return position + n
}

// ended reports whether the window reached to the end of the stream.
func (w *window) ended() bool { return w.to >= w.reserved }

// collect returns the messages of a query, until one is not wanted. If messages
// after after were dropped, the error is a TooOldError.
func (w *window) collect(rows pgx.Rows, want func(*Message) bool) (all []Message, err error) {
	defer rows.Close()
	oldest, wanted := int64(0), true // a stream that there is has an oldest position
	for rows.Next() {
		m, err := scanMessage(rows)
		if err != nil {
			return nil, err
		}
		if m.Position < 0 { // the row after the messages: see stateRowFmt and read_shared
			oldest = -m.Position
			if w.reserved, err = strconv.ParseInt(m.Key, 10, 64); err != nil {
				return nil, fmt.Errorf("state of the stream: %w", err)
			}
			w.moved, w.history = m.Headers != nil, baseOf(m.Time)
			continue
		}
		if wanted = wanted && want(&m); wanted {
			all = append(all, m)
		}
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	if oldest == 0 {
		return nil, ErrNotFound
	}
	if oldest-1 > w.after { // after + 1 may be more than there is
		return nil, &TooOldError{Oldest: oldest}
	}
	return all, nil
}
