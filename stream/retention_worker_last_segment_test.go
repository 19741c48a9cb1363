package stream_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/tidewire/tidewire/stream"
)

// TestRetentionWorker_LastSegmentAfterARollback: a transaction allocated positions after the end of the last
// segment, and was rolled back: an append that PostgreSQL cancelled, or whose lock timed out. A
// RetentionWorker's round later the stream can still be appended to.
func TestRetentionWorker_LastSegmentAfterARollback(t *testing.T) {
	t.Parallel()
	db, s := ensureOwn(t)
	a := run(t, db.Pool, s, stream.AppenderConfig{})
	mustAppend(t, a, stream.Message{Payload: []byte("x")})
	tx := begin(t, db.Pool, "read committed")
	exec(t, tx, `SELECT tidewire.take_positions($1, $2::text::regclass, 16384, 1, 1)`, s.ID(), fmt.Sprintf("tidewire.stream_%d_position_seq", s.ID()))
	rollBack(t, tx)
	alter(t, db.Pool, s, stream.Retention{MaxAge: time.Millisecond})
	time.Sleep(20 * time.Millisecond)
	keepOnce(t, db.Pool)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if _, err := a.Append(ctx, stream.Message{Payload: []byte("y")}); err != nil {
		t.Error(err)
	}
}

// TestRetentionWorker_LastSegmentFull: the last segment was filled completely while, for example, ANALYZE
// held the lock that a new one needs. A RetentionWorker's round later the stream can still be appended to.
func TestRetentionWorker_LastSegmentFull(t *testing.T) {
	t.Parallel()
	db, s := ensureOwn(t)
	a := run(t, db.Pool, s, stream.AppenderConfig{})
	tx := begin(t, db.Pool, "read committed")
	exec(t, tx, fmt.Sprintf(`LOCK TABLE ONLY tidewire.stream_%d IN SHARE UPDATE EXCLUSIVE MODE`, s.ID()))
	for range 128 {
		mustAppend(t, a, make([]stream.Message, 128)...)
	}
	rollBack(t, tx)
	alter(t, db.Pool, s, stream.Retention{MaxAge: time.Millisecond})
	time.Sleep(20 * time.Millisecond)
	keepOnce(t, db.Pool)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if at, err := firstOf(a.Append(ctx, stream.Message{Payload: []byte("y")})); err != nil || at <= 16384 {
		t.Errorf("at %d, %v", at, err)
	}
}
