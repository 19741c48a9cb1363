package stream

import (
	"context"
	"fmt"
	"math"
)

// The reads below hold a bounded number of bytes: they are for servers that read on
// behalf of a client.

const (
	// Like readPageFmt: a message is included if those before it have less than $7
	// bytes.
	readKeyPageSQL = `
SELECT ` + pageColumns + ` FROM (
	SELECT *, sum(` + contentBytes + `) OVER (ORDER BY position ROWS UNBOUNDED PRECEDING) AS total
	FROM tidewire.read_key($1, $2, $3, $4, $6, false)
) AS counted
WHERE total - ` + contentBytes + ` < $7 ORDER BY position`

	keyFromEndSQL = `SELECT coalesce(min(position) FILTER (WHERE total = $4), 0) FROM (SELECT position, count(*) OVER () AS total FROM tidewire.read_key($1, $2, $3, 9223372036854775807, $4, true)) AS last`

	keyStartSQL = `SELECT coalesce(min(position) - 1, $3) FROM tidewire.read_key($1, $2, 0, $3, $4, true)`
)

// ReadPage is Read with a bound on bytes: it returns at most limit messages, of
// together at most bytes bytes, or one larger message alone, unless WithMaxMessage forbids that. The size of a message
// is that of its payload, key and headers, and 128 bytes. It returns none only at
// the end of the stream.
func (s *Stream) ReadPage(ctx context.Context, after int64, limit, bytes int) ([]Message, error) {
	if err := validPage(limit, bytes); err != nil {
		return nil, err
	}
	if err := s.checkSingle("read"); err != nil {
		return nil, err
	}
	if p, ok := s.standbyPage(ctx, after, limit, bytes); ok {
		return p.messages, nil
	}
	p, _, err := s.page(ctx, after, limit, bytes, s.continues)
	return p.messages, err
}

// ReadRangePage is ReadRange with the bound on bytes of ReadPage. more reports whether there may be more messages.
func (s *Stream) ReadRangePage(ctx context.Context, after int64, limit, bytes int) (page []Message, more bool, err error) {
	if err := validPage(limit, bytes); err != nil {
		return nil, false, err
	}
	if err := s.checkSingle("read"); err != nil {
		return nil, false, err
	}
	p, more, err := s.page(ctx, after, limit, bytes, anywhere)
	return p.messages, more, err
}

// ReadKeyPage is ReadKey with the bound on bytes of ReadPage. It returns none only
// if there are none up to upTo.
func (s *Stream) ReadKeyPage(ctx context.Context, key string, after, upTo int64, limit, bytes int) ([]Message, error) {
	if err := validPage(limit, bytes); err != nil {
		return nil, err
	}
	if err := s.checkKey(key); err != nil {
		return nil, err
	}
	limit = min(limit, math.MaxInt32) // PostgreSQL's
	rows, err := s.pool.Query(ctx, readKeyPageSQL, s.Partition(s.PartitionOf(key)).id, key, after, upTo, s.mostBytes(), limit, bytes)
	if err != nil {
		return nil, s.explain("read", err)
	}
	defer rows.Close()
	var all []Message
	scanner := newMessageScanner()
	for held := 0; rows.Next(); {
		m, err := scanner.scan(rows)
		if err != nil {
			return nil, s.explain("read", err)
		}
		if large := oversized(&m); large != nil && len(all) == 0 {
			return nil, s.explain("read", large)
		} else if large != nil {
			break
		}
		if held += m.held(); held > bytes && len(all) > 0 {
			break
		}
		all = append(all, m)
	}
	rows.Close()
	if err := rows.Err(); err != nil {
		return nil, s.explain("read", err)
	}
	return all, nil
}

// KeyStart returns the position after which the last n messages with the key begin,
// up to position upTo inclusive. Use it to read them in pages; LastKey holds all in
// memory. It returns upTo if there are none.
func (s *Stream) KeyStart(ctx context.Context, key string, upTo int64, n int) (after int64, err error) {
	if err := validLimit(n); err != nil {
		return 0, err
	}
	if err := s.checkKey(key); err != nil {
		return 0, err
	}
	row := s.pool.QueryRow(ctx, keyStartSQL, s.Partition(s.PartitionOf(key)).id, key, upTo, min(n, math.MaxInt32))
	if err := row.Scan(&after); err != nil {
		return 0, s.explain("read", err)
	}
	return after, nil
}

// KeyFromEnd returns the position of the n-th last message with the key, or 0 if fewer than n
// have come after position after. It holds nothing in memory; PostgreSQL reads n rows of an index.
func (s *Stream) KeyFromEnd(ctx context.Context, key string, after int64, n int) (position int64, err error) {
	if err := validLimit(n); err != nil {
		return 0, err
	}
	if err := s.checkKey(key); err != nil {
		return 0, err
	}
	row := s.pool.QueryRow(ctx, keyFromEndSQL, s.Partition(s.PartitionOf(key)).id, key, after, min(n, math.MaxInt32))
	if err := row.Scan(&position); err != nil {
		return 0, s.explain("read", err)
	}
	return position, nil
}

func validPage(limit, bytes int) error {
	if bytes < 1 {
		return fmt.Errorf("%w page: %d bytes, want at least 1", ErrInvalid, bytes)
	}
	return validLimit(limit)
}
