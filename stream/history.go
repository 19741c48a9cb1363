package stream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// ErrHistoryLost is wrapped by HistoryLostError: the requested position is after the end of the
// stream, or belongs to messages that were lost in a failover, because the standby that took over did
// not have them.
var ErrHistoryLost = errors.New("stream: the position is after the end, or a failover has lost it")

// HistoryLostError tells where the lost history branches off from the current one: Last is the position of
// the last message that both have, or of the last message dropped before the branch. Reading after Last
// begins with the first message that replaces the lost ones. The lost messages had positions after Last, up
// to at least the requested one; these positions are never reused.
type HistoryLostError struct{ Last int64 }

func (e *HistoryLostError) Error() string {
	return fmt.Sprintf("%v: the last message before is at %d", ErrHistoryLost, e.Last)
}

func (e *HistoryLostError) Unwrap() error { return ErrHistoryLost }

// historyBits: bases are multiples of 2^18. See migrate/sql/0001_histories.sql.
const historyBits = 18

// baseOf returns the base of the history, which the last row of a read encodes as its time. No
// message of an earlier history has a position higher than the base.
func baseOf(began time.Time) int64 { return began.Unix() << historyBits }

// continues returns a HistoryLostError if the messages that a reader has received before the window are not
// the ones that the stream has there. messages are the first ones of the window.
//
// A reader that is past the end has received lost messages. If the next message belongs to a later history,
// the reader must have received the last message of the history before.
func (s *Stream) continues(ctx context.Context, w *window, messages []Message) error {
	next := w.reserved + 1
	if len(messages) > 0 {
		next = messages[0].Position
	}
	past := next <= w.after
	if len(messages) == 0 {
		next = max(next, w.history+1) // lower bound of the next message's position, so that the check need not wait for it
	}
	if w.after == 0 || !past && (w.history == 0 || w.after>>historyBits == (next-1)>>historyBits) {
		return nil
	}
	var last *int64
	if err := s.pool.QueryRow(ctx, lostSinceSQL, s.id, w.after, next).Scan(&last); err != nil || last == nil {
		return err
	}
	return &HistoryLostError{Last: *last}
}

// Check returns a HistoryLostError if a failover has lost the message at a position that a reader has
// received, or if the position is after the end of the stream. It is for readers by key, whose reads do not
// detect this.
func (s *Stream) Check(ctx context.Context, position int64) error {
	if err := s.checkSingle("check a position of"); err != nil {
		return err
	}
	var last *int64
	if err := s.pool.QueryRow(ctx, checkSQL, s.id, position).Scan(&last); err != nil {
		return s.explain("check a position of", err)
	}
	if last != nil {
		return &HistoryLostError{Last: *last}
	}
	return nil
}

// Gap is a range of positions that no message has, because of a failover: After is exclusive, UpTo
// inclusive.
type Gap struct{ After, UpTo int64 }

// Gaps returns the gaps that failovers have left in the stream, in order. A caller that counts messages by
// their positions has to subtract them.
func (s *Stream) Gaps(ctx context.Context) ([]Gap, error) {
	rows, err := s.pool.Query(ctx, gapsSQL, s.id)
	if err != nil {
		return nil, s.explain("gaps of", err)
	}
	gaps, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Gap])
	if err != nil {
		return nil, s.explain("gaps of", err)
	}
	return gaps, nil
}

// Between returns the number of positions from one to another, both inclusive, without those in the gaps.
func Between(from, to int64, gaps []Gap) int64 {
	n := max(0, to-from+1)
	for _, g := range gaps {
		n -= max(0, min(to, g.UpTo)-max(from, g.After+1)+1)
	}
	return n
}
