package eventstore

import (
	"context"
	"encoding/binary"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// work is one batch of calls on its way to the committer.
type work struct {
	calls []*call
	// checked is the end of the history in which the conditions of the calls with
	// held set were checked.
	checked basis
}

// checker evaluates the conditions of the next batch while the current batch
// commits. This is most of the work of a condition, and needs no lock. A conflict
// is final. "No conflict" is valid up to the last batch that the query saw; the
// committer only checks the events after it.
type checker struct {
	store  *Store
	params params
	// acquire bounds the wait for a connection.
	acquire time.Duration
}

// gathered receives a batch of the group and hands it to the committer.
func (c *checker) gathered(ctx context.Context, b *gathering) {
	w := work{calls: slices.DeleteFunc(b.calls, (*call).left)}
	b.calls = nil
	select {
	case b.calls = <-c.store.spare:
	default:
	}
	// An idle committer checks in its own round trip.
	if c.store.committing.Load() && c.store.spareConns {
		c.check(ctx, &w)
	}
	if len(w.calls) > 0 {
		c.store.batch <- w
	}
}

// check answers the calls that conflict, and those whose conditions are too
// expensive for a batch. For the others it records up to which position they do not
// conflict. If the check fails, or gets no connection because all are used by reads,
// the committer checks everything.
func (c *checker) check(ctx context.Context, w *work) {
	start := c.store.tailStart.Load()
	var asked []*call
	lookups := 0
	for _, call := range w.calls {
		if !call.conditional || max(call.after, call.slowBasis.position) >= start {
			continue
		}
		if call.probes.lookups() > maxLookups && c.store.checksApart(call) {
			continue
		}
		if lookups += call.probes.lookups(); len(asked) > 0 && lookups > maxLookupsAhead {
			break // the committer checks the others
		}
		asked = append(asked, call)
	}
	if len(asked) == 0 {
		return
	}
	found, err := c.ask(ctx, ahead.of(asked), asked...)
	if err != nil {
		return
	}
	w.checked = found.basis
	for _, call := range asked {
		call.held = found.basis.position
	}
	c.store.counts.checkedAhead.Add(int64(len(asked)))
	if len(found.calls) > 0 {
		c.refuse(w, asked, found)
	}
}

// refuse answers the calls in found and removes them from the batch.
func (c *checker) refuse(w *work, asked []*call, found conflicts) {
	refused := make(map[*call]struct{}, len(found.calls))
	for i, n := range found.calls {
		asked[n].answer(answer{err: c.store.refusal(found.positions[i], found.types[i])})
		refused[asked[n]] = struct{}{}
	}
	kept := w.calls[:0]
	for _, call := range w.calls {
		if _, out := refused[call]; !out {
			kept = append(kept, call)
		}
	}
	clear(w.calls[len(kept):])
	w.calls = kept
}

// refusal returns the error for a call that PostgreSQL reports: it conflicts with an
// event; or, with position 0, its check was too expensive; or, with a negative
// position, the history that its condition relies on is lost.
func (s *Store) refusal(position int64, eventType string) error {
	if position == 0 {
		s.counts.undecided.Add(1)
		return errUndecided
	}
	if position < 0 {
		return &HistoryLostError{Last: -1 - position}
	}
	s.counts.conflicts.Add(1)
	return &ConflictError{Position: position, Type: eventType}
}

// conflicts is the result of a check: calls by their index, each with the position
// and type of the first conflicting event. Position 0 means that the check of the
// call gave up.
type conflicts struct {
	basis     basis
	calls     []int32
	positions []int64
	types     []string
}

// ask makes PostgreSQL look for events that conflict with the calls, without any lock.
// budget is the number of rows after which a probe gives up.
func (c *checker) ask(ctx context.Context, budget int32, asked ...*call) (conflicts, error) {
	conn, err := c.connection(ctx)
	if err != nil {
		return conflicts{}, err
	}
	defer conn.Release()
	ctx, cancel := context.WithTimeout(ctx, c.store.cfg.Timeout)
	defer cancel()
	statement, err := conn.Conn().Prepare(ctx, c.store.sql.conflicts, c.store.sql.conflicts)
	if err != nil {
		return conflicts{}, err
	}
	c.params.reset(keepParams)
	c.params.probes(asked, func(call *call) int64 { return max(call.after, call.slowBasis.position) })
	c.params.int4(budget)
	result := conn.Conn().PgConn().ExecPrepared(ctx, statement.Name, c.params.values(), binaryFormat, binaryFormat)
	return readConflicts(result)
}

// connection acquires a connection of the pool if it gets one within c.acquire. It
// does not use a deadline: the pool pings an idle connection under the deadline of
// the context, and closes it if the answer takes longer.
func (c *checker) connection(ctx context.Context) (*pgxpool.Conn, error) {
	acquiring, stop := context.WithCancel(ctx)
	defer stop()
	defer time.AfterFunc(c.acquire, stop).Stop()
	conn, err := c.store.pool.Acquire(acquiring)
	if err != nil && acquiring.Err() != nil && ctx.Err() == nil {
		err = context.DeadlineExceeded
	}
	return conn, err
}

func readConflicts(result *pgconn.ResultReader) (found conflicts, err error) {
	for result.NextRow() {
		row := result.Values()
		if row[0] != nil {
			found.basis = basis{bigint(row[0]), bigint(row[1]), bigint(row[2])}
		}
		found.calls, found.positions, found.types = int4s(row[3]), int8s(row[4]), texts(row[5])
	}
	_, err = result.Close()
	return found, err
}

// probes appends the parameters of a check: the probes of all calls. from returns the
// position after which to look for conflicts with a call.
func (p *params) probes(asked []*call, from func(*call) int64) {
	n, tagless := 0, false
	for _, c := range asked {
		n += c.probes.n
		tagless = tagless || c.probes.tagless
	}
	p.arrayHeader(oidInt4, n)
	for i, c := range asked {
		for range c.probes.n {
			(*column)(&p.buf).int4(int32(i))
		}
	}
	p.end()
	p.arrayHeader(oidInt8, n)
	for _, c := range asked {
		after := from(c)
		for range c.probes.n {
			(*column)(&p.buf).int8(after)
		}
	}
	p.end()
	p.join(oidInt8, n, asked, func(c *call) column { return c.probes.drivers })
	p.join(oidText, n, asked, func(c *call) column { return c.probes.others })
	p.join(oidInt8, n, asked, func(c *call) column { return c.probes.signatures })
	p.join(oidInt4, n, asked, func(c *call) column { return c.probes.typeHashes })
	p.join(oidText, n, asked, func(c *call) column { return c.probes.types })
	p.join(oidText, n, asked, func(c *call) column { return c.probes.tags })
	p.bool(tagless)
}

// join appends one array of n elements: the concatenated columns of the calls.
func (p *params) join(oid uint32, n int, calls []*call, of func(*call) column) {
	p.arrayHeader(oid, n)
	for _, c := range calls {
		p.buf = append(p.buf, of(c)...)
	}
	p.end()
}

// keepParams is the size up to which the buffer of encoded parameters is reused.
const keepParams = 16 << 20

var binaryFormat = []int16{1}

func bigint(raw []byte) int64 { return int64(binary.BigEndian.Uint64(raw)) }
