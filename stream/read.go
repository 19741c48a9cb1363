package stream

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/pg"
)

// Read returns at most limit committed messages after position after, in order: it may return fewer
// before a gap, and returns none at the end of the stream. A reader that continues with the position
// of the last message read misses none: no message ever appears below a position that was seen, and if
// the stream's retention has dropped messages after position after, the error is a TooOldError. If
// after is past the end of the stream, or a failover has lost its message, the error is a
// HistoryLostError.
//
// All messages are held in memory: limit times the size of a message bounds it.
func (s *Stream) Read(ctx context.Context, after int64, limit int) ([]Message, error) {
	return s.readAfter(ctx, after, limit, s.continues)
}

// ReadRange is Read for a reader that does not continue from a message, but starts at any position, which
// need not be a message's: it returns no HistoryLostError.
func (s *Stream) ReadRange(ctx context.Context, after int64, limit int) ([]Message, error) {
	return s.readAfter(ctx, after, limit, anywhere)
}

// anywhere is the check of a read that begins at any position.
func anywhere(context.Context, *window, []Message) error { return nil }

func (s *Stream) readAfter(
	ctx context.Context, after int64, limit int, check func(context.Context, *window, []Message) error,
) ([]Message, error) {
	if err := validLimit(limit); err != nil {
		return nil, err
	}
	if err := s.checkSingle("read"); err != nil {
		return nil, err
	}
	for w := newWindow(after, limit); ; w.widen() {
		how := s.reading(ctx, &w, false)
		rows, err := s.pool.Query(ctx, how.sql, how.args(w.after, w.to, limit)...)
		var all []Message
		if err == nil {
			all, err = w.collect(rows, func(*Message) bool { return true })
		}
		if s.heard(how, &w, err) {
			continue
		}
		if err != nil {
			return nil, s.explain("read", err)
		}
		if len(all) > 0 || w.ended() {
			if err := check(ctx, &w, all); err != nil {
				return nil, s.explain("read", err)
			}
			return all, nil
		}
	}
}

// ReadKey returns at most limit messages with the key, after position after and up
// to position upTo inclusive, in order. math.MaxInt64 means no bound. On a stream
// that is not keyed the error is ErrNotKeyed. Messages that the stream's retention
// has dropped are left out without an error: from the position Oldest on, nothing
// is missing.
//
// It searches the stream's segments from after on, until it has enough: a key with
// few messages takes some 0.1 ms a segment.
//
// If the stream has partitions, it reads the partition of the key.
func (s *Stream) ReadKey(ctx context.Context, key string, after, upTo int64, limit int) ([]Message, error) {
	if err := s.checkKey(key); err != nil {
		return nil, err
	}
	return s.readKey(ctx, key, after, upTo, limit, false)
}

// LastKey returns the last messages with the key, at most n of them, up to position
// upTo inclusive, in ascending order. math.MaxInt64 means no bound. On a stream
// that is not keyed the error is ErrNotKeyed. For dropped messages and costs see
// ReadKey.
func (s *Stream) LastKey(ctx context.Context, key string, upTo int64, n int) ([]Message, error) {
	if err := s.checkKey(key); err != nil {
		return nil, err
	}
	all, err := s.readKey(ctx, key, 0, upTo, n, true)
	slices.Reverse(all)
	return all, err
}

// Head returns the position of the last committed message, even if it was dropped
// since, or 0 if there never was one. A read after that position returns only
// messages that were not committed when Head was called.
func (s *Stream) Head(ctx context.Context) (int64, error) {
	head, _, err := s.state(ctx)
	return head, err
}

// Oldest returns the lowest position that may still be stored: 1, or the position
// after the last message that the stream's retention has dropped. Reading after
// Oldest - 1 begins with the oldest message.
func (s *Stream) Oldest(ctx context.Context) (int64, error) {
	_, oldest, err := s.state(ctx)
	return oldest, err
}

func (s *Stream) state(ctx context.Context) (head, oldest int64, err error) {
	if err := s.checkSingle("head of"); err != nil {
		return 0, 0, err
	}
	var own bool
	err = s.pool.QueryRow(ctx, stateSQL, s.id).Scan(&head, &oldest, &own)
	if err != nil {
		return 0, 0, s.explain("head", err)
	}
	s.storage.own.Store(own)
	return head, oldest, nil
}

func (s *Stream) checkKey(key string) error {
	if !s.keyed {
		return fmt.Errorf("read stream %q by key: %w", s.name, ErrNotKeyed)
	}
	if key == "" {
		return fmt.Errorf("%w key: empty", ErrInvalid)
	}
	return validKey(key)
}

func validLimit(limit int) error {
	if limit < 1 {
		return fmt.Errorf("%w limit: %d, want at least 1", ErrInvalid, limit)
	}
	return nil
}

// readKey reads messages by key.
func (s *Stream) readKey(ctx context.Context, key string, after, upTo int64, limit int, backward bool) ([]Message, error) {
	if err := validLimit(limit); err != nil {
		return nil, err
	}
	limit = min(limit, math.MaxInt32) // PostgreSQL's int
	rows, err := s.pool.Query(ctx, readKeySQL, s.Partition(s.PartitionOf(key)).id, key, after, upTo, limit, backward)
	if err != nil {
		return nil, s.explain("read", err)
	}
	all, err := pgx.CollectRows(rows, newMessageScanner().scan)
	if err != nil {
		return nil, s.explain("read", err)
	}
	return all, nil
}

// page returns the messages after position after, within the given numbers of
// messages and of bytes in memory, or one larger message, and whether there may be
// more. The error is that of check, a TooOldError, or a TooLargeError for the first message.
func (s *Stream) page(
	ctx context.Context, after int64, messages, bytes int, check func(context.Context, *window, []Message) error,
) (p tailPage, more bool, err error) {
	for w := newWindow(after, messages); ; w.widen() {
		how := s.reading(ctx, &w, true)
		rows, err := s.pool.Query(ctx, how.sql, how.args(w.after, w.to, messages, bytes, s.mostBytes())...)
		var large *TooLargeError // the first message that is not in the page
		if err == nil {
			p.bytes, more = 0, false
			p.messages, err = w.collect(rows, func(m *Message) bool {
				if large = oversized(m); large != nil || p.bytes > 0 && p.bytes+m.held() > bytes {
					more = true
					return false
				}
				p.bytes += m.held()
				return true
			})
		}
		if s.heard(how, &w, err) {
			continue
		}
		if err != nil {
			return tailPage{}, false, s.explain("read", err)
		}
		if len(p.messages) == 0 && large != nil {
			if err = check(ctx, &w, []Message{{Position: large.Position}}); err == nil {
				err = large
			}
			return tailPage{}, false, s.explain("read", err)
		}
		if len(p.messages) > 0 || w.ended() {
			// The query bounds a page by contentBytes, which is less than the memory held.
			more = more || len(p.messages) == messages || p.bytes >= bytes || !w.ended()
			p.history = w.history
			if err := check(ctx, &w, p.messages); err != nil {
				return tailPage{}, false, s.explain("read", err)
			}
			return p, more, nil
		}
	}
}

// through returns the stream, reading through another pool.
func (s *Stream) through(pool *pgxpool.Pool) *Stream {
	other := *s
	other.pool = pool
	return &other
}

// explain adds the operation and the stream's name to err, and maps a missing table
// to ErrNotFound.
func (s *Stream) explain(what string, err error) error {
	if pg.Code(err) == pg.CodeUndefinedTable {
		err = ErrNotFound
	}
	return fmt.Errorf("%s stream %q: %w", what, s.name, err)
}
