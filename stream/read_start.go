package stream

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Start is where a reader of a stream begins. The zero value is the beginning:
// the oldest message that is kept when the first is read.
type Start struct {
	kind  startKind
	after int64
	time  time.Time
}

type startKind int

const (
	startOldest startKind = iota
	startAfter
	startAtEnd
	startSince
)

// After begins with the first message after that position, 0 being before
// the first there ever was. If the stream has not reached that position, or messages up to it were
// lost by a failover, reading fails with a HistoryLostError. If messages after the position were dropped by the stream's
// retention, reading fails with a TooOldError, also after position 0: whoever
// wants what there is begins with the zero Start.
func After(position int64) Start { return Start{kind: startAfter, after: position} }

// AtEnd begins after the last message that is committed at the time of the
// call that is given the Start.
func AtEnd() Start { return Start{kind: startAtEnd} }

// AtTime begins with the first message, in the order of positions, whose Time is
// t or later; if none is stored that late, like AtEnd. Messages that retention
// has dropped are not among them: that is no error.
//
// Times and positions have nearly the same order: after that message there may
// be some with an earlier Time, which waited longer for the stream's lock.
// There is no index on time: the message is found by halving the stream, some
// 30 reads of one row, and then by reading the times of one minute, the most
// that a writer can have waited.
func AtTime(t time.Time) Start { return Start{kind: startSince, time: t} }

// timeDisorder is the most by which a message's Time may be later than that of
// another one with a higher position.
const timeDisorder = time.Minute

// adrift reports whether a reader begins with what is kept when it reads first.
func (from Start) adrift() bool { return from.kind == startOldest || from.kind == startSince }

// resolve returns the position after which to begin.
func (from Start) resolve(ctx context.Context, s *Stream) (after int64, err error) {
	switch from.kind {
	case startOldest:
		oldest, err := s.Oldest(ctx)
		return oldest - 1, err
	case startAtEnd:
		return s.Head(ctx)
	case startSince:
		return s.before(ctx, from.time)
	}
	if from.after < 0 {
		return 0, fmt.Errorf("%w position: %d, want at least 0", ErrInvalid, from.after)
	}
	return from.after, nil
}

// before returns the position after which the first message with the time t
// or later comes first, or else the head.
func (s *Stream) before(ctx context.Context, t time.Time) (int64, error) {
	for {
		shared := s.storage.shared()
		after, err := s.search(ctx, s.timeSQL(shared), t)
		if err != nil || !shared {
			return after, err
		}
		// The messages may have moved meanwhile, and then there was nothing to find.
		if _, _, err := s.state(ctx); err != nil || s.storage.shared() {
			return after, err
		}
	}
}

// timeSQL are the queries of a search by time.
type timeSQL struct{ probe, scan string }

func (s *Stream) timeSQL(shared bool) timeSQL {
	from := s.table.name
	if shared {
		from = fmt.Sprintf(sharedOfFmt, s.id)
	}
	return timeSQL{fmt.Sprintf(probeTimeFmt, from), fmt.Sprintf(scanTimeFmt, from)}
}

// search is before, where the messages are.
func (s *Stream) search(ctx context.Context, sql timeSQL, t time.Time) (int64, error) {
	head, oldest, err := s.state(ctx)
	if err != nil {
		return 0, err
	}
	// A message at a lower position than one from before this time was
	// committed, and so begun, before t.
	after, err := s.halve(ctx, sql.probe, oldest-1, head, t.Add(-timeDisorder))
	if err != nil {
		return 0, err
	}
	for w := newWindow(after, minWindow); ; {
		var first, last *int64
		err := s.pool.QueryRow(ctx, sql.scan, pgx.QueryExecModeCacheDescribe, w.after, w.to, t).Scan(&first, &last)
		switch {
		case err != nil:
			return 0, s.explain("search by time in", err)
		case first != nil:
			return *first - 1, nil
		case last != nil:
			after = *last
			w = newWindow(max(after, min(w.to, head)), minWindow) // after head some may be under way
		case w.to >= head:
			return max(head, after), nil
		default:
			w.widen()
		}
	}
}

// halve returns a position from low to high, low or that of a message with a
// time before t, that a message with the time t or later, or none, comes next to.
func (s *Stream) halve(ctx context.Context, probe string, low, high int64, t time.Time) (int64, error) {
	for low < high {
		middle := low + (high-low)/2
		var position int64
		var at time.Time
		err := s.pool.QueryRow(ctx, probe, pgx.QueryExecModeCacheDescribe, middle, high).Scan(&position, &at)
		if err != nil && err != pgx.ErrNoRows {
			return 0, s.explain("search by time in", err)
		}
		if err == nil && at.Before(t) {
			low = position
		} else {
			high = middle
		}
	}
	return low, nil
}
