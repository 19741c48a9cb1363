package stream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// ErrTooOld is what a TooOldError is: messages after the position that was
// asked for were dropped by the stream's retention.
var ErrTooOld = errors.New("stream: position is older than what is kept")

// TooOldError tells where to go on: reading after Oldest - 1 begins with the
// oldest message that is kept. More may be dropped by then.
type TooOldError struct{ Oldest int64 }

func (e *TooOldError) Error() string {
	return fmt.Sprintf("%v: the oldest that may be kept is %d", ErrTooOld, e.Oldest)
}

func (e *TooOldError) Unwrap() error { return ErrTooOld }

// Retention is how long a stream keeps its messages. The zero value keeps them
// for ever.
//
// A RetentionWorker drops messages, from the oldest on, if MaxAge or MaxBytes says so, and, with Consumed,
// if besides all groups have read them. Until it gets to them, more is kept than is said here.
//
// The table of a stream that has its own is in segments, which become about 128 MiB
// large, or an eighth of MaxBytes, or as much as comes in an eighth of MaxAge, if
// that is less. A segment is dropped as a whole, and never the one being
// written: so more may be kept for as long as a segment lasts. One that was begun before
// the policy may be larger than MaxBytes, and stays until half of MaxBytes has come after it.
//
// A stream that shares a table loses the messages that need not be kept, and no others. Its
// size is summed up again when an eighth of its messages have come since, or what may be an
// eighth of MaxBytes. If more than
// 128 MiB may be kept of it, and are, it gets tables of its own.
type Retention struct {
	// MaxAge: a message goes when it is older, a segment when its last message is.
	// 0 is no bound.
	MaxAge time.Duration
	// MaxBytes: the oldest go while all together are larger on disk, indexes
	// included; messages that share a table count with about what they take there. 0 is no bound.
	MaxBytes int64
	// Consumed: a message, or a segment, stays as long as any group of the stream has not
	// committed an offset at it, or at its end; all stay if there is no group. Without
	// MaxAge and MaxBytes that is the only condition.
	Consumed bool
}

// SetRetention sets what the stream keeps. It needs a RetentionWorker in any
// process to have an effect. Not for the stream of a queue, whose consumers are
// no group. Of a stream with partitions each keeps as much as Retention says,
// but its share of MaxBytes.
//
// Errors: ErrInvalid for a negative bound; ErrNotFound; ErrPartition for a
// partition alone.
func (s *Stream) SetRetention(ctx context.Context, r Retention) error {
	if r.MaxAge < 0 || r.MaxBytes < 0 {
		return fmt.Errorf("%w retention: %v and %d bytes, want at least 0", ErrInvalid, r.MaxAge, r.MaxBytes)
	}
	var age *time.Duration
	if r.MaxAge > 0 {
		age = new(max(r.MaxAge, time.Microsecond)) // PostgreSQL's unit
	}
	var bytes *int64
	if r.MaxBytes > 0 {
		bytes = &r.MaxBytes
	}
	var found bool
	err := inReadCommitted(ctx, s.pool, setRetentionSQL, []any{s.name, age, bytes, r.Consumed}, scanOne(&found))
	if err == nil && !found {
		err = ErrNotFound
	}
	if err = explainPartition(err); err != nil {
		return fmt.Errorf("set the retention of stream %q: %w", s.name, err)
	}
	return nil
}

// Info is how a stream stands.
type Info struct {
	// Head and Oldest are what the methods of Stream return.
	Head, Oldest int64
	// Segments of the stream's table, one or two of which are empty as a rule,
	// and their size on disk with all indexes. A stream that shares its table has no
	// segments, and its size is an estimate by the last thousand of the messages that are kept.
	Segments int
	Bytes    int64
	// Retention is what SetRetention has set.
	Retention Retention
}

// Info returns how the stream stands. It takes some 20 us a segment. Of a stream
// with partitions it is their sum, and Oldest, which tells nothing then, is 0.
func (s *Stream) Info(ctx context.Context) (Info, error) {
	if s.count > 0 {
		return s.sumInfo(ctx)
	}
	var info Info
	var age *time.Duration
	var bytes *int64
	err := s.pool.QueryRow(ctx, infoSQL, pgx.QueryExecModeCacheDescribe, s.id).Scan(&info.Head, &info.Oldest, &info.Segments, &info.Bytes,
		&age, &bytes, &info.Retention.Consumed)
	if errors.Is(err, pgx.ErrNoRows) {
		err = ErrNotFound
	}
	if err != nil {
		return Info{}, s.explain("inspect", err)
	}
	info.Retention.bound(age, bytes)
	return info, nil
}

// bound sets the bounds, nil being none.
func (r *Retention) bound(age *time.Duration, bytes *int64) {
	if age != nil {
		r.MaxAge = *age
	}
	if bytes != nil {
		r.MaxBytes = *bytes
	}
}
