package stream

import (
	"fmt"
	"math"
	"strconv"

	"github.com/jackc/pgx/v5"
)

// window is the range of positions that one query reads: after position after, up to
// to. Without an upper bound PostgreSQL would plan for, and open, every later segment,
// which takes milliseconds if there are hundreds, for a read that needs one or two.
type window struct {
	after, to int64
	width     int64 // initial width
	reserved  int64 // no message that the query could see has a higher position
	history   int64 // the base of the current history
	widened   bool
	back      bool // the stream's own tables do not exist: the shared table is read
	moved     bool // the shared table was read, but the stream has its own tables
}

// minWindow is the minimum width of a window: some positions may be gaps.
const minWindow = 1000

// newWindow begins after position after, and is as wide as limit messages
// without gaps.
func newWindow(after int64, limit int) window {
	after = max(after, 0)
	width := max(int64(limit), minWindow)
	return window{after: after, to: beyond(after, width), width: width}
}

// widen widens a window that contained no message: a large gap takes a few queries.
// The start stays, because messages in the window may have been uncommitted, and be
// visible when the next query sees later ones.
func (w *window) widen() {
	if w.moved { // the window was not read
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

// collect returns the messages of a query up to the first one that is not wanted.
// If messages after w.after were dropped, the error is a TooOldError.
func (w *window) collect(rows pgx.Rows, want func(*Message) bool) (all []Message, err error) {
	defer rows.Close()
	oldest, wanted := int64(0), true // oldest stays 0 if the stream does not exist
	scanner := newMessageScanner()
	for rows.Next() {
		m, err := scanner.scan(rows)
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
	if oldest-1 > w.after { // not after + 1, which may overflow
		return nil, &TooOldError{Oldest: oldest}
	}
	return all, nil
}
