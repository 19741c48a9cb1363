package stream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// ErrTooOld is wrapped by TooOldError: the stream's retention has dropped messages
// after the requested position.
var ErrTooOld = errors.New("stream: position is older than what is kept")

// TooOldError tells where to continue: reading after Oldest - 1 begins with the
// oldest message that is kept. More messages may be dropped before that read.
type TooOldError struct{ Oldest int64 }

func (e *TooOldError) Error() string {
	return fmt.Sprintf("%v: the oldest that may be kept is %d", ErrTooOld, e.Oldest)
}

func (e *TooOldError) Unwrap() error { return ErrTooOld }

// Retention says how long a stream keeps its messages. The zero value keeps them forever.
//
// A RetentionWorker drops messages, from the oldest on, that exceed MaxAge or MaxBytes and, with Consumed,
// that all groups have read. Until it has run, more is kept than these bounds.
//
// A stream's own table consists of segments. A segment grows to about 128 MiB, or an eighth of MaxBytes,
// or the messages of an eighth of MaxAge, whichever is least. Segments are dropped whole, and never the
// one being written, so up to a segment more is kept. A segment that was begun before the policy was set
// may be larger than MaxBytes; it stays until half of MaxBytes was written after it.
//
// For a stream in the shared table, exactly the messages past the bounds are deleted. Its size is computed
// again after an eighth of its messages, or about an eighth of MaxBytes, was added. If it may keep more
// than 128 MiB, and does, it gets its own tables.
type Retention struct {
	// MaxAge: a message is dropped when it is older, a segment when its last
	// message is. 0 means no bound.
	MaxAge time.Duration
	// MaxBytes: the oldest messages are dropped while the stream is larger on disk, indexes
	// included; for a shared stream this size is an estimate. 0 means no bound.
	MaxBytes int64
	// Consumed: a message, or a segment, is kept until every group of the stream has
	// committed the position of the message, or of the segment's end; if there is no
	// group, everything is kept. Without MaxAge and MaxBytes this is the only condition.
	Consumed bool
}

// SetRetention sets the stream's Retention. It takes effect only if a
// RetentionWorker runs in some process. Do not use it for the stream of a queue:
// consumers of a queue are not a group. In a stream with partitions the Retention
// applies to each partition, with MaxBytes divided among them.
//
// Errors: ErrInvalid for a negative bound; ErrNotFound; ErrPartition for a
// partition alone.
func (s *Stream) SetRetention(ctx context.Context, r Retention) error {
	if r.MaxAge < 0 || r.MaxBytes < 0 {
		return fmt.Errorf("%w retention: %v and %d bytes, want at least 0", ErrInvalid, r.MaxAge, r.MaxBytes)
	}
	var age *time.Duration
	if r.MaxAge > 0 {
		age = new(max(r.MaxAge, time.Microsecond)) // the resolution of PostgreSQL
	}
	var bytes *int64
	if r.MaxBytes > 0 {
		bytes = &r.MaxBytes
	}
	var found bool
	err := inReadCommitted(ctx, s.pool, setRetentionSQL, []any{s.id, s.name, age, bytes, r.Consumed}, scanOne(&found))
	if err == nil && !found {
		err = ErrNotFound
	}
	if err = explainPartition(err); err != nil {
		return fmt.Errorf("set the retention of stream %q: %w", s.name, err)
	}
	return nil
}

// Retention returns what SetRetention has set. For a partition MaxBytes is its part. The error is ErrNotFound if the
// stream was dropped.
func (s *Stream) Retention(ctx context.Context) (r Retention, err error) {
	var age *time.Duration
	var bytes *int64
	err = s.pool.QueryRow(ctx, retentionSQL, s.id).Scan(&age, &bytes, &r.Consumed)
	if errors.Is(err, pgx.ErrNoRows) {
		err = ErrNotFound
	}
	if err != nil {
		return Retention{}, s.explain("read the retention of", err)
	}
	r.bound(age, bytes)
	return r, nil
}

// Info is the state of a stream.
type Info struct {
	// Head and Oldest are the results of the methods of Stream.
	Head, Oldest int64
	// Segments is the number of segments of the stream's own table, one or two of which are
	// usually empty, and Bytes is their size on disk with all indexes. A shared stream has no
	// segments; its size is an estimate from its last thousand messages.
	Segments int
	Bytes    int64
	// Retention is what SetRetention has set.
	Retention Retention
}

// Info returns the state of the stream. It takes some 20 us a segment. For a stream
// with partitions it is the sum over them, and Oldest, which has no meaning then,
// is 0.
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

// bound sets the bounds; nil means no bound.
func (r *Retention) bound(age *time.Duration, bytes *int64) {
	if age != nil {
		r.MaxAge = *age
	}
	if bytes != nil {
		r.MaxBytes = *bytes
	}
}
