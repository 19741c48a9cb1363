package eventstore

import (
	"context"
	"errors"
	"iter"

	"github.com/jackc/pgx/v5"

	"github.com/tidewire/tidewire/internal/pg"
)

const (
	// streamRows and streamBytes bound one page of QueryStream and subscriptions. A
	// larger event is a page of its own.
	streamRows  = 1000
	streamBytes = 1 << 20
	// queryBytes bounds one page of Query.
	queryBytes = 16 << 20
	// manyProbes is the number of probes from which a query may have to search many
	// events, even if all its probes have tags.
	manyProbes = 100
)

// ReadOptions limits which matching events are read. The zero value reads all of
// them, oldest first.
type ReadOptions struct {
	// After reads only events with a higher position. If it is past the end of the store, or a failover has
	// lost events up to it, the error is ErrHistoryLost. Defaults to 0, the beginning.
	After int64
	// Before reads only events with a lower position. Defaults to 0: up to the end.
	Before int64
	// Limit is the maximum number of events. Defaults to no limit.
	Limit int
	// MaxBytes ends the read with the event at which the total of types, ids, tags
	// and data reaches MaxBytes. So a read returns at least one matching event, and
	// exceeds MaxBytes by less than one event. Defaults to no limit.
	MaxBytes int
	// Backwards reads the newest first.
	Backwards bool
}

func (o ReadOptions) withDefaults() ReadOptions {
	if o.Before == 0 {
		o.Before = noPosition
	}
	return o
}

func (o ReadOptions) validate() error {
	switch {
	case o.After < 0:
		return invalid("options.after", "%d, want at least 0", o.After)
	case o.Before < 0:
		return invalid("options.before", "%d, want at least 0", o.Before)
	case o.Limit < 0:
		return invalid("options.limit", "%d, want at least 0", o.Limit)
	case o.MaxBytes < 0:
		return invalid("options.maxBytes", "%d, want at least 0", o.MaxBytes)
	}
	return nil
}

// searching bounds one statement of a query that may have to search many events and
// find few: span is how many positions it searches first, patience the milliseconds
// after which it stops and reports how far it has come.
type searching struct {
	span     int64
	patience int32
}

var usualSearch = searching{span: 100_000, patience: 250}

// Query returns the matching events, as a snapshot of one moment: events that are
// committed later have higher positions than all events of the snapshot, so that no
// event will ever appear among or before the events returned. All of them are in
// memory: use ReadOptions.MaxBytes or QueryStream for large results.
//
// A query for up to 1,000 events and 16 MiB is one round trip. A slow query is read in
// pieces, up to the position at which the store ended when the first piece was read;
// Config.Timeout bounds each piece, and not the whole Query.
//
// Errors: ErrInvalid, ErrNotFound, ErrHistoryLost, ctx's error, and errors of
// PostgreSQL, also if it is unavailable.
func (s *Store) Query(ctx context.Context, query Query, options ReadOptions) ([]Event, error) {
	events, _, err := s.read(ctx, s.readPage, query, options)
	return events, err
}

// read returns the events and the position of the last event that the store
// had when they were read.
func (s *Store) read(ctx context.Context, page pageFunc, query Query, options ReadOptions) (events []Event, head int64, err error) {
	if err := query.validate("query"); err != nil {
		return nil, 0, err
	}
	if err := options.validate(); err != nil {
		return nil, 0, err
	}
	c := newCursor(page, query, options)
	c.continues = s.continues
	for !c.done {
		page, err := c.next(ctx, streamRows, queryBytes)
		if err != nil {
			return nil, 0, s.explain("query", err)
		}
		if events == nil {
			events = page
		} else {
			events = append(events, page...)
		}
	}
	return events, c.head, nil
}

// QueryStream is Query as a loop. It reads up to 1 MiB or 1,000 events at a time, and
// holds no connection and no database snapshot while the caller processes them. It
// also yields the events of one moment, that of the first read. If there is an error,
// it is in the last pair, with a zero Event.
func (s *Store) QueryStream(ctx context.Context, query Query, options ReadOptions) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		err := query.validate("query")
		if err == nil {
			err = options.validate()
		}
		if err != nil {
			yield(Event{}, err)
			return
		}
		c := newCursor(s.readPage, query, options)
		c.continues = s.continues
		for !c.done {
			page, err := c.next(ctx, streamRows, streamBytes)
			if err != nil {
				yield(Event{}, s.explain("query", err))
				return
			}
			for _, e := range page {
				if !yield(e, nil) {
					return
				}
			}
		}
	}
}

// cursor reads, page by page, the events that a query matched when the first page was read.
type cursor struct {
	page    pageFunc
	request pageRequest
	left    int  // what remains of the caller's Limit; negative for none
	bytes   int  // the same for MaxBytes
	begun   bool // head is known
	head    int64
	done    bool
	// continues, if not nil, checks whether events before the first page are lost.
	continues func(ctx context.Context, after, head int64) error
}

// pageFunc reads a page.
type pageFunc func(context.Context, pageRequest) ([]Event, pageResult, error)

func newCursor(page pageFunc, query Query, options ReadOptions) *cursor {
	o := options.withDefaults()
	c := &cursor{page: page, left: -1, bytes: -1, request: pageRequest{
		query: query, after: o.After, before: o.Before, backwards: o.Backwards, head: o.After > 0,
	}}
	if o.Limit > 0 {
		c.left = o.Limit
	}
	if o.MaxBytes > 0 {
		c.bytes = o.MaxBytes
	}
	return c
}

// next reads a page of at most rows events and about bytes bytes. The page may be empty
// although there are more events.
func (c *cursor) next(ctx context.Context, rows, bytes int) ([]Event, error) {
	r := &c.request
	r.bytes, r.limit = bytes, rows
	if c.left >= 0 {
		r.limit = min(rows, c.left)
	}
	if c.bytes >= 0 {
		r.bytes = min(bytes, max(1, c.bytes))
	}
	events, found, err := c.page(ctx, *r)
	if err != nil {
		return nil, err
	}
	if !c.begun {
		if c.continues != nil && r.after > 0 {
			if err := c.continues(ctx, r.after, found.head); err != nil {
				return nil, err
			}
		}
		c.begun, c.head = true, found.head
		if found.head > 0 && r.before > c.head {
			r.before = c.head + 1 // exclude events that are committed from now on
		}
	}
	if c.left >= 0 {
		c.left -= len(events)
	}
	events = c.within(events)
	at, more := found.end(r)
	if r.backwards {
		r.before = at
	} else {
		r.after = at
	}
	c.done = c.left == 0 || c.bytes == 0 || !more || r.after >= r.before-1
	return events, nil
}

// end returns the position at which the page ends, and whether there may be more
// events after it.
func (found *pageResult) end(r *pageRequest) (at int64, more bool) {
	switch {
	case found.cut || found.candidates == r.limit:
		return found.last, true
	case found.searched > 0:
		return found.searched, true
	}
	return found.last, false
}

// within returns the events up to the one that fills MaxBytes.
func (c *cursor) within(events []Event) []Event {
	if c.bytes < 0 {
		return events
	}
	for i := range events {
		if c.bytes -= events[i].weight(); c.bytes <= 0 {
			c.bytes = 0
			return events[:i+1]
		}
	}
	return events
}

// weight is the size of an event for MaxBytes.
func (e *Event) weight() int {
	n := len(e.Type) + len(e.ID) + len(e.Data)
	for _, tag := range e.Tags {
		n += len(tag)
	}
	return n
}

// pageRequest is one read.
type pageRequest struct {
	query         Query
	after, before int64
	limit, bytes  int
	backwards     bool
	head          bool // always return the store's head
}

// tagged reports whether a faster statement can serve the request: it reads all events
// with one tag, of all types from the beginning to the end of the store, or of one type
// in any range.
func (r *pageRequest) tagged() bool {
	if len(r.query.Items) != 1 || r.backwards {
		return false
	}
	item := &r.query.Items[0]
	return len(item.Tags) == 1 && (len(item.Types) == 1 || len(item.Types) == 0 && r.after == 0 && r.before == noPosition)
}

// pageResult describes a page that was read.
type pageResult struct {
	head       int64 // the position of the store's last event; may be 0 if this page is all there is
	candidates int   // number of events that PostgreSQL returned, by hashes: some may not match
	last       int64 // the position of the last candidate
	cut        bool  // the page has reached its limit of bytes
	searched   int64 // the position at which a slow search stopped, or 0
}

// page reads one page. PostgreSQL selects events by hashes, which may collide, so the
// strings are compared here.
func (s *Store) page(ctx context.Context, r pageRequest) ([]Event, pageResult, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	if err := pg.Acquire(ctx, s.reads); err != nil {
		return nil, pageResult{}, err
	}
	defer func() { <-s.reads }()
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return nil, pageResult{}, err
	}
	defer conn.Release()
	return s.pageOn(ctx, conn.Conn(), r)
}

// pageOn is page on the given connection.
func (s *Store) pageOn(ctx context.Context, conn *pgx.Conn, r pageRequest) ([]Event, pageResult, error) {
	p := readers.Get().(*reader)
	defer p.free()
	for tagged := r.tagged(); ; {
		byPosition := s.moved.Load()
		var err error
		if tagged {
			err = p.read(ctx, conn, s.sql.tagged, p.encodeTagged(&r, byPosition))
		} else {
			err = p.read(ctx, conn, s.sql.page, p.encodePage(&r, byPosition, s.searching, &s.frequency))
		}
		switch {
		case err != nil:
			return nil, pageResult{}, err
		case p.passed:
			tagged = false
		case p.inOrder(&r):
			events, found := p.finish(&r)
			return events, found, nil
		case byPosition:
			return nil, pageResult{}, errMissing
		default:
			s.cfg.Log.Warn("events are not where the index says, reading by position from now on", "store", s.name)
			s.moved.Store(true)
		}
	}
}

// errMissing means a damaged store: a read that silently skipped events would be wrong.
var errMissing = errors.New("the index of tags names events that are not there; restore all tables of the store from one backup")

// read runs a statement that returns one row.
func (p *reader) read(ctx context.Context, conn *pgx.Conn, sql string, values [][]byte) error {
	statement, err := conn.Prepare(ctx, sql, sql)
	if err != nil {
		return err
	}
	result := conn.PgConn().ExecPrepared(ctx, statement.Name, values, binaryFormat, binaryFormat)
	for result.NextRow() {
		p.row(result.Values())
	}
	_, err = result.Close()
	return err
}

// Head returns the position of the last event that is committed, or 0.
func (s *Store) Head(ctx context.Context) (int64, error) {
	var head int64
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	if err := s.pool.QueryRow(ctx, s.sql.head).Scan(&head); err != nil {
		return 0, s.explain("ask for the head of", err)
	}
	return head, nil
}
