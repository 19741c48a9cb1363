package stream

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5"

	"github.com/tidewire/tidewire/internal/pg"
)

const (
	// oftenRead is the number of reads of a stream between two lookups of the
	// segment that is read: for rare reads a prepared statement does not pay,
	// because it takes tens of kilobytes of each connection's memory.
	oftenRead = 32
	// edition is the number of positions by which a stream grows until its
	// statements are prepared again: PostgreSQL may keep a plan that was best while
	// the segment was empty, and that scans the whole segment now.
	edition = 1 << 13
)

// readSQL holds the queries on one stream's table.
type readSQL struct {
	table string // of the messages
	once  sync.Once
	texts readTexts

	reads   atomic.Int64
	head    atomic.Int64 // last known value of the stream's position sequence
	segment atomic.Pointer[segmentSQL]
}

// readTexts are built on first use: a shared stream never needs them.
type readTexts struct {
	state       string // stateRowFmt with the table's name
	after, page string
}

func (r *readSQL) sql() *readTexts {
	r.once.Do(func() {
		state := fmt.Sprintf(stateRowFmt, r.table)
		r.texts = readTexts{
			state: state, after: fmt.Sprintf(readFmt, r.table) + state, page: fmt.Sprintf(readPageFmt, r.table) + state,
		}
	})
	return &r.texts
}

// segmentSQL are the queries on the segment that is read most. The bounds of a
// segment never change.
type segmentSQL struct {
	first, last int64
	after, page string
}

// covers reports whether a window begins in the segment.
func (g *segmentSQL) covers(w *window) bool {
	return g != nil && !w.widened && w.after >= g.first-1 && w.after < g.last
}

// reading says how to read a window.
type reading struct {
	sql     string
	mode    pgx.QueryExecMode
	segment bool  // reads one segment, not the whole stream
	shared  int32 // the stream, if it is read from the shared table; else 0
}

// args returns the arguments of the query, after the execution mode.
func (r *reading) args(values ...any) []any {
	if r.shared > 0 {
		values = append(values, r.shared)
	}
	return append([]any{r.mode}, values...)
}

// reading returns how to read a window, and sets the window's end to the end of what
// the query covers.
//
// For a shared stream the query covers everything after the window's start: one
// index, one plan for all streams.
//
// Reads of a whole stream are planned each time, which prunes all segments that are
// not needed. Planning takes PostgreSQL twice as long as reading a few messages, and
// a generic plan for any window would have to open every segment. So frequent reads,
// mostly at the end of a stream, query the segment by its name with a prepared
// statement.
func (s *Stream) reading(ctx context.Context, w *window, page bool) reading {
	if s.storage.shared() {
		w.to = math.MaxInt64
		if page {
			return reading{sql: readSharedPageSQL, mode: pgx.QueryExecModeCacheStatement, shared: s.id}
		}
		return reading{sql: readSharedSQL, mode: pgx.QueryExecModeCacheStatement, shared: s.id}
	}
	r := s.read
	often := r.reads.Add(1)%oftenRead == 0
	g := r.segment.Load()
	if !g.covers(w) && often && !w.widened {
		g = s.findSegment(ctx, w.after+1)
		r.segment.Store(g)
	}
	if !g.covers(w) {
		if page {
			return reading{sql: r.sql().page, mode: pgx.QueryExecModeCacheDescribe}
		}
		return reading{sql: r.sql().after, mode: pgx.QueryExecModeCacheDescribe}
	}
	w.to = min(w.to, g.last)
	sql := g.after
	if page {
		sql = g.page
	}
	sql += " -- " + strconv.FormatInt(r.head.Load()/edition, 10)
	return reading{sql: sql, mode: pgx.QueryExecModeCacheStatement, segment: true}
}

// findSegment returns the segment that holds a position, or nil if it does not
// exist or the query failed; in that case the read reports the error.
func (s *Stream) findSegment(ctx context.Context, position int64) *segmentSQL {
	var g segmentSQL
	if s.pool.QueryRow(ctx, findSegmentSQL, s.id, position).Scan(&g.first, &g.last) != nil {
		return nil
	}
	name := fmt.Sprintf("%s_%d", s.read.table, g.last)
	g.after = fmt.Sprintf(readSegmentFmt, name) + s.read.sql().state
	g.page = fmt.Sprintf(readSegmentPageFmt, name) + s.read.sql().state
	return &g
}

// heard processes the result of a read: it notes the stream's end, and reports whether
// the read has to be repeated, because the segment was dropped or the stream has moved
// to or from the shared table.
func (s *Stream) heard(how reading, w *window, err error) (again bool) {
	if w.reserved > 0 {
		s.read.head.Store(w.reserved)
	}
	if how.segment && pg.Code(err) == pg.CodeUndefinedTable {
		s.read.segment.Store(nil)
		return true
	}
	if how.shared == 0 && !w.back && pg.Code(err) == pg.CodeUndefinedTable {
		s.storage.own.Store(false) // or the stream was dropped; the next read will tell
		w.back = true
		return true
	}
	if how.shared > 0 && w.moved {
		s.storage.own.Store(true)
		return true
	}
	return false
}
