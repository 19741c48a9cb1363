package stream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// ErrHistoryLost is what a HistoryLostError is: the position that was asked for is one of messages that
// were lost, as a standby that took over did not have them.
var ErrHistoryLost = errors.New("stream: the position is after the end, or a failover has lost it")

// HistoryLostError tells where the history that was lost parts from the one that goes on: Last is the position
// of the last message that both have, or of the last one dropped before. Reading after Last begins with the first message
// that came in place of the lost ones. The lost messages had positions after Last, up to the one that was asked for at least;
// no message has them ever again.
type HistoryLostError struct{ Last int64 }

func (e *HistoryLostError) Error() string {
	return fmt.Sprintf("%v: the last message before is at %d", ErrHistoryLost, e.Last)
}

func (e *HistoryLostError) Unwrap() error { return ErrHistoryLost }

// historyBits: bases are multiples of 2^18. See migrate/sql/0001_histories.sql.
const historyBits = 18

// baseOf returns the base of the history that the last row of a read names by its time: no message of
// the histories before has a higher position.
func baseOf(began time.Time) int64 { return began.Unix() << historyBits }

// continues returns a HistoryLostError if what a reader has had up to the beginning of the window is not what the
// stream has there. Messages are the first after it.
//
// A reader that is past the end has had more than there is. One for whom the next message is of another
// history has to have had the last one of the history before.
func (s *Stream) continues(ctx context.Context, w *window, messages []Message) error {
	next := w.reserved + 1
	if len(messages) > 0 {
		next = messages[0].Position
	}
	past := next <= w.after
	if len(messages) == 0 {
		next = max(next, w.history+1) // where the next message will be at least: there is no need to wait for it
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

// Check returns a HistoryLostError if a failover has lost the message at a position that a reader has had, or the position is after the
// end of the stream. It is for those who read by key, where nothing else tells.
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

// Gap is positions that no message has, since a failover: those after the one, up to and with the other.
type Gap struct{ After, UpTo int64 }

// Gaps returns the gaps that failovers have left in the stream, in order. A caller that counts messages by their positions
// leaves them out.
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

// Between is how many positions there are from one to another, both among them, without those of the gaps.
func Between(from, to int64, gaps []Gap) int64 {
	n := max(0, to-from+1)
	for _, g := range gaps {
		n -= max(0, min(to, g.UpTo)-max(from, g.After+1)+1)
	}
	return n
}
