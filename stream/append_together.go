package stream

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tidewire/tidewire/internal/pg"
)

// outcome is how an attempt to commit ended.
type outcome int

const (
	committed outcome = iota
	refused           // PostgreSQL has answered, and nothing was stored
	unsent            // there was no connection, so nothing was sent
	lost              // PostgreSQL did not answer
	unknown           // and the lookup of the outcome failed, too
)

// Names of prepared statements.
const (
	stmtAppendTogether = "tidewire_append_together"
	stmtTakeShared     = "tidewire_take_shared"
	stmtRecordRequests = "tidewire_record_requests"
	stmtInsertShared   = "tidewire_insert_shared"
	stmtSetTimeout     = "tidewire_set_timeout"
	stmtResetTimeout   = "tidewire_reset_timeout"
)

// stored is the result of one transaction of a round.
type stored struct {
	firsts []int64 // first positions; 0 for a batch that was not stored
	at     time.Time
	slow   int // index of the batch that took longest
	took   time.Duration
}

// attempt sends the batches of the entries in one transaction, in one round trip. It does
// not release the session.
func (c *committer) attempt(ctx context.Context, entries []*entry) (got stored, how outcome, err error) {
	ctx, cancel := context.WithTimeout(ctx, togetherTimeout)
	defer cancel()
	c.number++
	if err := c.on.Hold(ctx); err != nil {
		return got, unsent, err
	}
	s := c.on.Session()
	if err := s.Connect(ctx); err != nil {
		return got, unsent, err
	}
	if err := s.Prepare(ctx, stmtAppendTogether, map[string]string{
		stmtAppendTogether: appendTogetherSQL, stmtSetTimeout: setTimeoutSQL, stmtResetTimeout: resetTimeoutSQL,
	}); err != nil {
		s.Close()
		return got, unsent, fmt.Errorf("prepare writer: %w", err)
	}
	got, err = sendTogether(ctx, s, c.params.of(c.id, c.number, entries))
	if err != nil {
		err = s.Recover(ctx, err)
	} else {
		err = s.Replicated(nil)
	}
	switch {
	case err == nil && len(got.firsts) != len(entries):
		return got, lost, fmt.Errorf("%d positions for %d batches", len(got.firsts), len(entries))
	case err == nil:
		c.forget(ctx)
		return got, committed, nil
	case s.Conn() == nil || pg.Code(err) == "":
		return got, lost, err
	}
	return got, refused, err
}

// sendTogether sends one transaction in a pipeline with one Sync.
func sendTogether(ctx context.Context, s *pg.Session, params [][]byte) (got stored, err error) {
	p := s.Conn().PgConn().StartPipeline(ctx)
	before := s.SendBegin(p, pg.ShortWait)
	p.SendQueryPrepared(stmtSetTimeout, nil, nil, nil)
	p.SendQueryPrepared(stmtAppendTogether, params, binaryFormat, binaryFormat)
	p.SendQueryPrepared(stmtResetTimeout, nil, nil, nil)
	p.SendQueryPrepared(pg.StmtCommit, nil, nil, nil)
	if err := p.Sync(); err != nil {
		return got, errors.Join(err, p.Close())
	}
	row, err := rowAfter(p, before+1)
	if err == nil && len(row) == 4 && len(row[2]) == 4 && len(row[3]) == 8 {
		got.at = parseTime(row[1])
		got.slow = int(binary.BigEndian.Uint32(row[2])) - 1
		got.took = time.Duration(binary.BigEndian.Uint64(row[3])) * time.Millisecond
		got.firsts, err = parseInt8Array(row[0])
	}
	if closeErr := p.Close(); err == nil { // reads the other results
		err = closeErr
	}
	return got, err
}

// rowAfter reads and skips the results of the first before statements, and returns a
// copy of the row of the next one.
func rowAfter(p *pgconn.Pipeline, before int) (row [][]byte, err error) {
	for n := range before + 1 {
		results, err := p.GetResults()
		if err != nil {
			return nil, err
		}
		reader, ok := results.(*pgconn.ResultReader)
		if !ok {
			return nil, fmt.Errorf("unexpected response %T", results)
		}
		for reader.NextRow() {
			if n == before {
				for _, v := range reader.Values() {
					row = append(row, slices.Clone(v))
				}
			}
		}
		if _, err := reader.Close(); err != nil {
			return nil, err
		}
	}
	return row, nil
}

// postgresEpoch is the epoch of PostgreSQL's binary times, in microseconds of Unix
// time.
var postgresEpoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()

// parseTime parses a binary timestamptz; it returns the zero time if b is invalid.
func parseTime(b []byte) time.Time {
	if len(b) != 8 {
		return time.Time{}
	}
	return time.UnixMicro(postgresEpoch + int64(binary.BigEndian.Uint64(b)))
}

var errArray = errors.New("not an array of bigint in PostgreSQL's binary format")

// parseInt8Array reads a one-dimensional binary array of bigint without NULLs.
func parseInt8Array(b []byte) ([]int64, error) {
	const header, element = 20, 4 + 8
	if len(b) < header || binary.BigEndian.Uint32(b) != 1 || binary.BigEndian.Uint32(b[8:]) != oidInt8 {
		return nil, errArray
	}
	n := int(binary.BigEndian.Uint32(b[12:]))
	if len(b)-header != n*element {
		return nil, errArray
	}
	all := make([]int64, n)
	for i := range all {
		all[i] = int64(binary.BigEndian.Uint64(b[header+i*element+4:]))
	}
	return all, nil
}

// togetherParams encodes the parameters of appendTogetherSQL, and reuses their
// memory.
type togetherParams struct {
	buf  []byte
	ends []int
}

// The types of rows in arrays, in the order of a rowBatch's fields.
var rowTypes = []uint32{oidBytea, oidText, oidJSONB}

// of returns the parameters, valid until the next call.
func (t *togetherParams) of(writer, number int64, entries []*entry) [][]byte {
	t.buf, t.ends = t.buf[:0], t.ends[:0]
	rows, requests := 0, 0
	for _, e := range entries {
		rows += e.rows.Len()
		requests += len(e.rows.requests)
	}
	t.buf = binary.BigEndian.AppendUint64(t.buf, uint64(writer))
	t.end()
	t.buf = binary.BigEndian.AppendUint64(t.buf, uint64(number))
	t.end()
	t.int4s(entries, func(e *entry) int { return int(e.of.stream.id) })
	t.heads(entries)
	t.int4s(entries, func(e *entry) int { return e.rows.Len() })
	t.batches(entries, rows)
	for field, oid := range rowTypes {
		t.buf = appendArrayHeader(t.buf, oid, rows)
		for _, e := range entries {
			t.buf = e.rows.appendElements(t.buf, field)
		}
		t.end()
	}
	t.int4s(entries, func(e *entry) int { return len(e.rows.requests) })
	t.requests(entries, requests, oidText, func(r *request) { t.field([]byte(r.Client)) })
	t.requests(entries, requests, oidInt8, func(r *request) { t.int8(r.Sequence) })
	t.requests(entries, requests, oidInt8, func(r *request) { t.int8(int64(r.row)) })
	t.requests(entries, requests, oidInt4, func(r *request) { t.int4(r.rows) })
	return t.params()
}

// params cuts the finished buffer into parameters.
func (t *togetherParams) params() [][]byte {
	params, from := make([][]byte, 0, len(t.ends)), 0
	for _, end := range t.ends {
		params = append(params, t.buf[from:end:end])
		from = end
	}
	return params
}

// end ends a parameter.
func (t *togetherParams) end() { t.ends = append(t.ends, len(t.buf)) }

// int4s adds an array with one number of each entry.
func (t *togetherParams) int4s(entries []*entry, number func(*entry) int) {
	t.buf = appendArrayHeader(t.buf, oidInt4, len(entries))
	for _, e := range entries {
		t.int4(number(e))
	}
	t.end()
}

// heads adds an array with the last known position of each stream.
func (t *togetherParams) heads(entries []*entry) {
	t.buf = appendArrayHeader(t.buf, oidInt8, len(entries))
	for _, e := range entries {
		t.int8(e.of.stream.storage.knownHead())
	}
	t.end()
}

// batches adds an array with the number of its entry, from 1, for each row.
func (t *togetherParams) batches(entries []*entry, rows int) {
	t.buf = appendArrayHeader(t.buf, oidInt4, rows)
	for i, e := range entries {
		for range e.rows.Len() {
			t.int4(i + 1)
		}
	}
	t.end()
}

// requests adds an array with one element for each request.
func (t *togetherParams) requests(entries []*entry, n int, oid uint32, add func(*request)) {
	t.buf = appendArrayHeader(t.buf, oid, n)
	for _, e := range entries {
		for i := range e.rows.requests {
			add(&e.rows.requests[i])
		}
	}
	t.end()
}

func (t *togetherParams) int4(v int) {
	t.buf = binary.BigEndian.AppendUint32(t.buf, 4)
	t.buf = binary.BigEndian.AppendUint32(t.buf, uint32(v))
}

func (t *togetherParams) int8(v int64) {
	t.buf = binary.BigEndian.AppendUint32(t.buf, 8)
	t.buf = binary.BigEndian.AppendUint64(t.buf, uint64(v))
}

func (t *togetherParams) field(v []byte) {
	t.buf = binary.BigEndian.AppendUint32(t.buf, uint32(len(v)))
	t.buf = append(t.buf, v...)
}
