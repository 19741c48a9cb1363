package stream

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/tidewire/tidewire/internal/pg"
)

// codeRepeated is raised by tidewire.record_requests for a repeated request.
// Otherwise a repetition violates the primary key of a table of records, named
// request_… or shared_request_….
const codeRepeated = "TW005"

// request is a RequestID with the index of its first row in a batch and its number
// of rows.
type request struct {
	RequestID
	row, rows int
}

// recordTypes are the types of the parameters of recordRequestsSQL: int, bigint,
// text[], bigint[], bigint[], int[].
var recordTypes = []uint32{23, 20, 1009, 1016, 1016, 1007}

// recordParams returns the parameters of recordRequestsSQL, as text.
func (b *rowBatch) recordParams(stream int32) [][]byte {
	var ids, sequences, rows, counts strings.Builder
	for i, r := range b.requests {
		separate(i, &ids, &sequences, &rows, &counts)
		ids.WriteByte('"')
		ids.WriteString(arrayEscaper.Replace(r.Client))
		ids.WriteByte('"')
		sequences.WriteString(strconv.FormatInt(r.Sequence, 10))
		rows.WriteString(strconv.Itoa(r.row))
		counts.WriteString(strconv.Itoa(r.rows))
	}
	for _, s := range []*strings.Builder{&ids, &sequences, &rows, &counts} {
		s.WriteByte('}')
	}
	return [][]byte{
		strconv.AppendInt(nil, int64(stream), 10), strconv.AppendInt(nil, int64(b.rows), 10),
		[]byte(ids.String()), []byte(sequences.String()), []byte(rows.String()), []byte(counts.String()),
	}
}

// separate begins element i of arrays in PostgreSQL's text format.
func separate(i int, arrays ...*strings.Builder) {
	c := byte(',')
	if i == 0 {
		c = '{'
	}
	for _, a := range arrays {
		a.WriteByte(c)
	}
}

var (
	// Within double quotes of an array's text.
	arrayEscaper = strings.NewReplacer(`\`, `\\`, `"`, `\"`)
	// Within E'…', which means the same whatever standard_conforming_strings is;
	// and '' whatever backslash_quote is.
	literalEscaper = strings.NewReplacer(`\`, `\\`, `'`, `''`)
)

// recordSQL is the statement that records the requests, for a query that can
// have no parameters, or empty.
func (b *rowBatch) recordSQL(stream int32) string {
	if len(b.requests) == 0 {
		return ""
	}
	params := b.recordParams(stream)
	literal := func(n int) string { return "E'" + literalEscaper.Replace(string(params[n])) + "'" }
	return fmt.Sprintf(recordRequestsFmt, stream, b.rows, literal(2), literal(3), literal(4), literal(5))
}

// repeated reports whether a batch was rejected because a request in it is
// recorded, too old, or contained twice.
func repeated(err error) bool {
	switch pg.Code(err) {
	case codeRepeated:
		return true
	case pg.CodeUniqueViolation:
		return strings.HasPrefix(pg.Constraint(err), "request_") || strings.HasPrefix(pg.Constraint(err), "shared_request_")
	}
	return false
}

// finding is the record of a request. The zero value means that there is none.
type finding struct {
	first  int64 // the position of its first message
	count  int   // number of its messages; 0 if the record does not say
	tooOld bool
}

// find looks up requests. While PostgreSQL is unavailable it retries until ctx
// ends.
func (w *batchWriter) find(ctx context.Context, requests []request) (map[RequestID]finding, error) {
	return w.lookUp(ctx, func(ctx context.Context) (map[RequestID]finding, error) { return w.findOnce(ctx, requests) })
}

// recordDuplicates records that the messages of requests are at firsts, each a unique one that is stored already, and looks
// the requests up, as find does.
func (w *batchWriter) recordDuplicates(ctx context.Context, requests []request, firsts []int64) (map[RequestID]finding, error) {
	ids, sequences := columnsOf(requests)
	return w.lookUp(ctx, func(ctx context.Context) (found map[RequestID]finding, err error) {
		ctx, cancel := context.WithTimeout(ctx, w.cfg.Timeout)
		defer cancel()
		err = inReadCommitted(ctx, w.pool, recordDuplicatesSQL, []any{w.table.lock, ids, sequences, firsts}, func(rows pgx.Rows) error {
			found, err = findings(rows, requests)
			return err
		})
		return found, err
	})
}

// lookUp calls once. While PostgreSQL is unavailable it does so again, until ctx ends.
func (w *batchWriter) lookUp(ctx context.Context, once func(context.Context) (map[RequestID]finding, error)) (map[RequestID]finding, error) {
	for failed := 0; ; failed++ {
		found, err := once(ctx)
		switch {
		case err == nil:
			return found, nil
		case ctx.Err() != nil:
			return nil, fmt.Errorf("look up requests: %w", ctx.Err())
		case !pg.Retryable(err):
			return nil, fmt.Errorf("look up requests: %w", err)
		}
		w.cfg.Log.Warn("requests not looked up, trying again", "attempt", failed+1, "error", err)
		if err := pg.Backoff(ctx, failed); err != nil {
			return nil, fmt.Errorf("look up requests: %w", err)
		}
	}
}

func (w *batchWriter) findOnce(ctx context.Context, requests []request) (map[RequestID]finding, error) {
	if err := w.on.Hold(ctx); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, w.cfg.Timeout)
	defer cancel()
	defer w.on.Release()
	s := w.on.Session()
	if err := s.Connect(ctx); err != nil {
		return nil, err
	}
	ids, sequences := columnsOf(requests)
	var found map[RequestID]finding
	rows, err := s.Conn().Query(ctx, findRequestsSQL, w.table.lock, ids, sequences)
	if err == nil {
		found, err = findings(rows, requests)
	}
	if err = s.Replicated(err); err != nil {
		s.CloseIfLost()
	}
	return found, err
}

func columnsOf(requests []request) (clients []string, sequences []int64) {
	for _, r := range requests {
		clients, sequences = append(clients, r.Client), append(sequences, r.Sequence)
	}
	return clients, sequences
}

// findings collects the rows of find_requests.
func findings(rows pgx.Rows, requests []request) (map[RequestID]finding, error) {
	found := make(map[RequestID]finding)
	var first *int64
	var tooOld bool
	var count *int
	n := 0
	_, err := pgx.ForEachRow(rows, []any{&first, &tooOld, &count}, func() error {
		if first != nil {
			f := finding{first: *first}
			if count != nil {
				f.count = *count
			}
			found[requests[n].RequestID] = f
		} else if tooOld {
			found[requests[n].RequestID] = finding{tooOld: true}
		}
		n++
		return nil
	})
	return found, err
}
