package stream

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Start is where a reader of a stream begins. The zero value is the oldest message
// that is kept at the time of the first read.
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

// After begins with the first message after that position; 0 is the position before the first message ever
// stored. If the stream has not reached the position, or a failover has lost messages up to it, reading fails
// with a HistoryLostError. If the stream's retention has dropped messages after the position, reading fails
// with a TooOldError, also for position 0: use the zero Start to begin with the oldest message that is kept.
func After(position int64) Start { return Start{kind: startAfter, after: position} }

// AtEnd begins after the last message that is committed when the reader begins: when
// Hub.Subscribe is called, or when a loop over Stream.Subscribe or Stream.Pages does its
// first step.
func AtEnd() Start { return Start{kind: startAtEnd} }

// AtTime begins with the first message, in the order of positions, whose Time is t
// or later; if there is none, it begins like AtEnd. Messages that retention has
// dropped are skipped without an error.
//
// Times and positions have nearly the same order: some messages after that one may
// have an earlier Time, because their writers waited longer for the stream's lock.
// There is no index on time: the message is found by binary search, some 30 reads
// of one row, and then by a scan of one minute, the longest that a writer can have
// waited.
func AtTime(t time.Time) Start { return Start{kind: startSince, time: t} }

// timeDisorder bounds how much later a message's Time may be than the Time of a
// message with a higher position.
const timeDisorder = time.Minute

// adrift reports whether a reader begins with the messages that are kept at its first read.
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

// before returns the position directly before the first message with the time t or
// later, or else the head.
func (s *Stream) before(ctx context.Context, t time.Time) (int64, error) {
	for {
		shared := s.storage.shared()
		after, err := s.search(ctx, s.timeSQL(shared), t)
		if err != nil || !shared {
			return after, err
		}
		// The messages may have moved to the stream's own tables meanwhile; then the search has found
		// nothing.
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

// search is before with the queries for the table that holds the messages.
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
			w = newWindow(max(after, min(w.to, head)), minWindow) // messages after head may still be uncommitted
		case w.to >= head:
			return max(head, after), nil
		default:
			w.widen()
		}
	}
}

// halve is a binary search in (low, high]. It returns low or the position of a
// message with a time before t, such that the next message has the time t or later,
// or that there is no next one.
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
