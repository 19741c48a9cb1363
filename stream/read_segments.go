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
	// oftenRead is how many reads of a stream lie between two looks for the segment
	// that is read: who reads now and then is not worth a prepared statement, which
	// takes tens of kilobytes of each connection's memory.
	oftenRead = 32
	// edition is how many positions a stream grows by until its statements are
	// prepared anew: PostgreSQL may keep a plan that was best while a segment was
	// empty, and that walks through all of it now.
	edition = 1 << 13
)

// readSQL holds the queries on one stream's table.
type readSQL struct {
	table string // of the messages
	once  sync.Once
	texts readTexts

	reads   atomic.Int64
	head    atomic.Int64 // of the stream, as last heard of
	segment atomic.Pointer[segmentSQL]
}

// readTexts are made when they are needed: a stream that shares its table never does.
type readTexts struct {
	state       string // what stateRowFmt comes to
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

// segmentSQL are the queries on one segment, the one that is read mostly. Its
// bounds never change.
type segmentSQL struct {
	first, last int64
	after, page string
}

// covers reports whether a window begins in the segment.
func (g *segmentSQL) covers(w *window) bool {
	return g != nil && !w.widened && w.after >= g.first-1 && w.after < g.last
}

// reading is how a window is to be read.
type reading struct {
	sql     string
	mode    pgx.QueryExecMode
	segment bool  // and not the whole stream
	shared  int32 // the stream, if it is read from the shared table; else 0
}

// args returns the arguments of the query, after what they are to be sent as.
func (r *reading) args(values ...any) []any {
	if r.shared > 0 {
		values = append(values, r.shared)
	}
	return append([]any{r.mode}, values...)
}

// reading returns how to read a window, which it cuts to what will be looked into.
//
// Of a shared stream it is all that comes after: one index, one plan for all streams.
//
// Reads of a whole stream are planned each time, which leaves out all segments but
// those that are needed. That takes PostgreSQL twice as long as to read a few
// messages, and a plan for any window would have to open each segment. So readers
// who come often, at the end of a stream mostly, go to the segment by its name, with
// a statement that is prepared.
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

// findSegment returns the segment that holds a position, or nil: it is not there,
// or PostgreSQL is not, which the read will say.
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

// heard takes in what a read of a window said: where the stream ends, and whether it is
// to be read once more, because the segment was dropped, or it is not where it was.
func (s *Stream) heard(how reading, w *window, err error) (again bool) {
	if w.reserved > 0 {
		s.read.head.Store(w.reserved)
	}
	if how.segment && pg.Code(err) == pg.CodeUndefinedTable {
		s.read.segment.Store(nil)
		return true
	}
	if how.shared == 0 && !w.back && pg.Code(err) == pg.CodeUndefinedTable {
		s.storage.own.Store(false) // or it was dropped, as the next read will say
		w.back = true
		return true
	}
	if how.shared > 0 && w.moved {
		s.storage.own.Store(true)
		return true
	}
	return false
}
