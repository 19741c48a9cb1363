package stream

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Start is where a reader of a stream begins. The zero value is the beginning.
type Start struct {
	kind  startKind
	after int64
	time  time.Time
}

type startKind int

const (
	startAfter startKind = iota
	startAtEnd
	startSince
)

// After begins with the first message behind that position; 0 is the beginning
// of the stream. A position that the stream has not reached yet is waited for.
func After(position int64) Start { return Start{kind: startAfter, after: position} }

// AtEnd begins behind the last message that is committed at the time of the
// call that is given the Start.
func AtEnd() Start { return Start{kind: startAtEnd} }

// Since begins with the first message, in the order of positions, whose Time is
// t or later; if none is stored that late, like AtEnd.
//
// Times and positions have nearly the same order: behind that message there may
// be some with an earlier Time, which waited longer for the stream's lock.
// There is no index on time: the message is found by halving the stream, some
// 30 reads of one row, and then by reading the times of one minute, the most
// that a writer can have waited.
func Since(t time.Time) Start { return Start{kind: startSince, time: t} }

// timeDisorder is the most by which a message's Time may be later than that of
// another one with a higher position.
const timeDisorder = time.Minute

// resolve returns the position behind which to begin.
func (from Start) resolve(ctx context.Context, s *Stream) (after int64, err error) {
	switch from.kind {
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

// before returns the position behind which the first message with the time t
// or later comes first, or else the head.
func (s *Stream) before(ctx context.Context, t time.Time) (int64, error) {
	head, err := s.Head(ctx)
	if err != nil {
		return 0, err
	}
	// Whoever has a lower position than a message from before this time was
	// committed, and so begun, before t.
	after, err := s.halve(ctx, head, t.Add(-timeDisorder))
	if err != nil {
		return 0, err
	}
	for {
		var first, last *int64
		err := s.pool.QueryRow(ctx, s.read.scanTime, pgx.QueryExecModeCacheDescribe, after, t).Scan(&first, &last)
		switch {
		case err != nil:
			return 0, s.explain("search by time in", err)
		case first != nil:
			return *first - 1, nil
		case last == nil:
			return max(head, after), nil
		}
		after = *last
	}
}

// halve returns a position up to head, 0 or that of a message with a time
// before t, that a message with the time t or later, or none, comes next to.
func (s *Stream) halve(ctx context.Context, head int64, t time.Time) (int64, error) {
	low, high := int64(0), head
	for low < high {
		middle := low + (high-low)/2
		var position int64
		var at time.Time
		err := s.pool.QueryRow(ctx, s.read.probeTime, pgx.QueryExecModeCacheDescribe, middle).Scan(&position, &at)
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
