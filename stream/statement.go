package stream

import (
	"fmt"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
)

const (
	// edition is how many positions a stream grows by until its statements are
	// prepared anew: PostgreSQL may keep a plan that was best while a segment was
	// empty, and that walks through all of it now.
	edition = 1 << 13
	// oftenUsed is how often a statement is used in an edition before it is
	// prepared: each takes tens of kilobytes of each connection's memory.
	oftenUsed = 32
)

// statement is a query on one stream's table, prepared while it is used often,
// for each edition anew: planning takes PostgreSQL twice as long as reading a few
// messages. Safe for concurrent use.
type statement struct {
	sql     string
	current atomic.Pointer[prepared]
}

// prepared is a statement of one edition. The number in the text tells it from
// others in a connection's cache.
type prepared struct {
	edition int64
	sql     string
	uses    atomic.Int64
}

// of returns the statement, and how to execute it, for a stream that reaches to
// head, about.
func (s *statement) of(head int64) (string, pgx.QueryExecMode) {
	p := s.current.Load()
	if p == nil || p.edition != head/edition {
		p = &prepared{edition: head / edition, sql: fmt.Sprintf("%s -- %d", s.sql, head/edition)}
		s.current.Store(p)
	}
	if p.uses.Add(1) <= oftenUsed {
		return s.sql, pgx.QueryExecModeCacheDescribe
	}
	return p.sql, pgx.QueryExecModeCacheStatement
}
