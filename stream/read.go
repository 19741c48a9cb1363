package stream

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/pg"
)

// readSQL holds the queries on one stream's table.
type readSQL struct {
	after, key, lastKey, head, page, probeTime, scanTime string
}

func newReadSQL(t *table) readSQL {
	return readSQL{
		after:     fmt.Sprintf(readFmt, t.name),
		key:       fmt.Sprintf(readKeyFmt, t.name),
		lastKey:   fmt.Sprintf(lastKeyFmt, t.name),
		head:      fmt.Sprintf(maxPositionFmt, t.name),
		page:      fmt.Sprintf(readPageFmt, t.name),
		probeTime: fmt.Sprintf(probeTimeFmt, t.name),
		scanTime:  fmt.Sprintf(scanTimeFmt, t.name),
	}
}

// Read returns at most limit messages behind position after, in order, as far
// as they are committed; none at the end of the stream. Whoever goes on with
// the position of the last message read misses none: nothing ever appears
// below a position that was seen.
//
// All is held in memory: the limit times the size of messages bounds it.
func (s *Stream) Read(ctx context.Context, after int64, limit int) ([]Message, error) {
	return s.query(ctx, s.read.after, limit, after)
}

// ReadKey returns at most limit messages with the key, behind position after
// and up to position upTo inclusive, in order. math.MaxInt64 is no bound. On a
// stream that is not keyed the error is ErrNotKeyed.
func (s *Stream) ReadKey(ctx context.Context, key string, after, upTo int64, limit int) ([]Message, error) {
	if err := s.checkKey(key); err != nil {
		return nil, err
	}
	return s.query(ctx, s.read.key, limit, key, after, upTo)
}

// LastKey returns the last messages with the key, at most n of them, up to
// position upTo inclusive, in ascending order. math.MaxInt64 is no bound. On a
// stream that is not keyed the error is ErrNotKeyed.
func (s *Stream) LastKey(ctx context.Context, key string, upTo int64, n int) ([]Message, error) {
	if err := s.checkKey(key); err != nil {
		return nil, err
	}
	all, err := s.query(ctx, s.read.lastKey, n, key, upTo)
	slices.Reverse(all)
	return all, err
}

// Head returns the position of the last committed message, or 0 if the stream
// holds none. Whoever reads behind it gets what was not committed when Head
// was called, and nothing else.
func (s *Stream) Head(ctx context.Context) (int64, error) {
	var head int64
	err := s.pool.QueryRow(ctx, s.read.head, pgx.QueryExecModeCacheDescribe).Scan(&head)
	if err != nil {
		return 0, s.explain("head", err)
	}
	return head, nil
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

// query reads messages; limit is the last parameter of all queries.
//
// The statement is not a prepared one, for which PostgreSQL may keep the plan
// that was best while the table was small: 100 messages of a key out of 500,000
// then take 45 ms, by a sequential scan and a sort, and not 0.1. Planning each
// time costs 0.03 ms.
func (s *Stream) query(ctx context.Context, sql string, limit int, args ...any) ([]Message, error) {
	if limit < 1 {
		return nil, fmt.Errorf("%w limit: %d, want at least 1", ErrInvalid, limit)
	}
	args = append([]any{pgx.QueryExecModeCacheDescribe}, append(args, limit)...)
	rows, err := s.pool.Query(ctx, sql, args...)
	if err != nil {
		return nil, s.explain("read", err)
	}
	all, err := pgx.CollectRows(rows, scanMessage)
	if err != nil {
		return nil, s.explain("read", err)
	}
	return all, nil
}

// page returns the messages behind position after, at most so many and so many
// bytes in memory, or one, and whether there may be more.
func (s *Stream) page(ctx context.Context, after int64, messages, bytes int) (p tailPage, more bool, err error) {
	rows, err := s.pool.Query(ctx, s.read.page, pgx.QueryExecModeCacheDescribe, after, messages, bytes)
	if err != nil {
		return tailPage{}, false, s.explain("read", err)
	}
	defer rows.Close()
	for rows.Next() {
		m, err := scanMessage(rows)
		if err != nil {
			return tailPage{}, false, s.explain("read", err)
		}
		if len(p.messages) > 0 && p.bytes+m.held() > bytes {
			more = true
			break
		}
		p.messages = append(p.messages, m)
		p.bytes += m.held()
	}
	rows.Close()
	if err := rows.Err(); err != nil {
		return tailPage{}, false, s.explain("read", err)
	}
	// The query ends a page by its payloads, which are less than what is held.
	more = more || len(p.messages) == messages || p.bytes >= bytes
	return p, more, nil
}

// through returns the stream as read through the pool.
func (s *Stream) through(pool *pgxpool.Pool) *Stream {
	other := *s
	other.pool = pool
	return &other
}

func scanMessage(row pgx.CollectableRow) (m Message, err error) {
	err = row.Scan(&m.Position, &m.Key, (*[]byte)(&m.Headers), &m.Payload, &m.Time)
	return m, err
}

// explain says what was done to which stream, and that it is gone if its table
// is.
func (s *Stream) explain(what string, err error) error {
	if pg.Code(err) == pg.CodeUndefinedTable {
		err = ErrNotFound
	}
	return fmt.Errorf("%s stream %q: %w", what, s.name, err)
}
