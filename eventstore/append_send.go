package eventstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tidewire/tidewire/internal/pg"
)

// result is PostgreSQL's answer to one batch: the position at which the store ended
// before it, and the calls that conflict.
type result struct {
	head      int64
	calls     []int32
	positions []int64
	types     []string
	again     bool // an earlier attempt was already committed
}

// attempt writes the batch once: BEGIN, lock, check, events and COMMIT in one
// round trip. wait bounds the wait for the lock. doubt means that an earlier attempt
// may have been committed; sent, that PostgreSQL may have received this one.
func (w *writer) attempt(ctx context.Context, b *batch, wait time.Duration, doubt bool) (r result, sent bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, w.store.cfg.Timeout)
	defer cancel()
	if err := w.connect(ctx); err != nil {
		return result{}, false, err
	}
	w.encode(b)
	r, err = w.send(ctx, w.store.sql.stmtAppend, wait, doubt)
	return r, true, err
}

// settle finds out whether the last batch was written. If it was not, settle makes
// sure that no late attempt can write it any more.
func (w *writer) settle(ctx context.Context) (r result, err error) {
	defer w.on.Release()
	lock := pg.LockWait{Bound: w.store.cfg.LockTimeout}
	for {
		if err := lock.Hold(ctx, &w.on); err != nil {
			return result{}, err
		}
		r, err = w.settleOnce(ctx, lock.Next())
		if !lock.GoesOn(err) {
			return r, err
		}
		w.on.Release()
	}
}

func (w *writer) settleOnce(ctx context.Context, wait time.Duration) (result, error) {
	ctx, cancel := context.WithTimeout(ctx, w.store.cfg.Timeout)
	defer cancel()
	if err := w.connect(ctx); err != nil {
		return result{}, err
	}
	w.params.reset(keepParams)
	w.params.int8(w.id)
	w.params.int8(w.number)
	return w.send(ctx, w.store.sql.stmtSettle, wait, true)
}

// send runs the statement with w.params in a transaction. finds means that the statement may find an earlier
// attempt that is committed already: if it writes nothing, its COMMIT still waits until the standbys have that.
func (w *writer) send(ctx context.Context, statement string, wait time.Duration, finds bool) (r result, err error) {
	s := w.on.Session()
	p := s.Conn().PgConn().StartPipeline(ctx)
	before := s.SendBegin(p, wait)
	p.SendQueryPrepared(statement, w.params.values(), binaryFormat, binaryFormat)
	if finds {
		p.SendQueryParams(waitIfUnwrittenSQL, nil, nil, nil, nil)
	}
	p.SendQueryPrepared(pg.StmtCommit, nil, nil, nil)
	err = p.Sync()
	if err == nil {
		r, err = readResult(p, before)
	}
	if closeErr := p.Close(); err == nil { // reads the other results
		err = closeErr
	}
	if err = s.Replicated(err); err != nil {
		return r, w.recover(ctx, err)
	}
	w.used = time.Now()
	return r, nil
}

// encode fills in the parameters of the store's append.
func (w *writer) encode(b *batch) {
	p := &w.params
	p.reset(keepParams)
	p.int8(w.id)
	p.int8(w.number)
	asked := make([]*call, 0, len(b.calls)+len(b.checked))
	asked = append(append(asked, b.calls...), b.checked...)
	p.bases(basesOf(w.tail.end, asked))
	p.events(b.calls)
	from := func(c *call) int64 { return c.from(w.tail.epoch) }
	least := int64(noPosition)
	for _, c := range asked {
		if c.conditional {
			least = min(least, from(c))
		}
	}
	p.int8(least)
	p.probes(asked, from)
	p.int4(underLock.of(asked))
	p.requests(b.calls)
	p.conditions(asked)
}

// conditions appends the After positions of the conditions, without those that are 0, and their minimum and maximum.
func (p *params) conditions(asked []*call) {
	var of, afters column
	n, least, most := 0, int64(noPosition), int64(0)
	for i, c := range asked {
		if c.conditional && c.after > 0 {
			n++
			of.int4(int32(i))
			afters.int8(c.after)
			least, most = min(least, c.after), max(most, c.after)
		}
	}
	p.array(oidInt4, n, of)
	p.array(oidInt8, n, afters)
	p.int8(least)
	p.int8(most)
}

// basesOf returns the histories that the calls rely on.
func basesOf(end basis, asked []*call) []basis {
	all := []basis{end}
	for _, c := range asked {
		if c.slowBasis.position > 0 && !slices.Contains(all, c.slowBasis) {
			all = append(all, c.slowBasis)
		}
	}
	if end.position == 0 {
		all = all[1:]
	}
	return all
}

func (p *params) bases(all []basis) {
	for _, of := range []func(basis) int64{
		func(b basis) int64 { return b.position }, func(b basis) int64 { return b.writer }, func(b basis) int64 { return b.number },
	} {
		p.arrayHeader(oidInt8, len(all))
		for _, b := range all {
			(*column)(&p.buf).int8(of(b))
		}
		p.end()
	}
}

// of returns the budget of each probe of the calls.
func (b bounds) of(asked []*call) int32 {
	lookups := 0
	for _, c := range asked {
		lookups += c.probes.lookups()
	}
	return b.budget(lookups)
}

// events appends the parameters that are the events and their tags.
func (p *params) events(calls []*call) {
	n, tags := 0, 0
	for _, c := range calls {
		n += c.events
		tags += len(c.tagEvents)
	}
	p.join(oidText, n, calls, func(c *call) column { return c.types })
	p.join(oidInt4, n, calls, func(c *call) column { return c.hashes })
	p.join(oidInt8, n, calls, func(c *call) column { return c.signatures })
	p.join(oidBool, n, calls, func(c *call) column { return c.json })
	p.join(oidText, n, calls, func(c *call) column { return c.ids })
	p.join(oidText, n, calls, func(c *call) column { return c.tags })
	p.join(oidBytea, n, calls, func(c *call) column { return c.data })
	p.join(oidBytea, n, calls, func(c *call) column { return c.packed })
	p.arrayHeader(oidInt4, n)
	for i, c := range calls {
		for range c.events {
			(*column)(&p.buf).int4(int32(i))
		}
	}
	p.end()
	p.join(oidInt8, tags, calls, func(c *call) column { return c.tagHashes })
	p.arrayHeader(oidInt4, tags)
	first := int32(1) // arrays of PostgreSQL begin with 1
	for _, c := range calls {
		for _, event := range c.tagEvents {
			(*column)(&p.buf).int4(first + event)
		}
		first += int32(c.events)
	}
	p.end()
}

// requests appends the parameters with the RequestIDs of the calls.
func (p *params) requests(calls []*call) {
	var clients, sequences, of, firsts column
	n, first := 0, int32(1)
	for i, c := range calls {
		if c.request.Client != "" {
			n++
			clients.text(c.request.Client)
			sequences.int8(c.request.Sequence)
			of.int4(int32(i))
			firsts.int4(first)
		}
		first += int32(c.events)
	}
	p.array(oidText, n, clients)
	p.array(oidInt8, n, sequences)
	p.array(oidInt4, n, of)
	p.array(oidInt4, n, firsts)
}

// readResult reads the results up to that of the append, which returns the result
// row. before is the number of results before it.
func readResult(p *pgconn.Pipeline, before int) (r result, err error) {
	for n := range before + 1 {
		results, err := p.GetResults()
		if err != nil {
			return r, err
		}
		reader, ok := results.(*pgconn.ResultReader)
		if !ok {
			return r, errors.Join(fmt.Errorf("%T instead of a result", results), err)
		}
		for reader.NextRow() {
			if n == before {
				r.scan(reader.Values())
			}
		}
		if _, err := reader.Close(); err != nil {
			return r, err
		}
	}
	return r, nil
}

// scan decodes a row of the append.
func (r *result) scan(row [][]byte) {
	r.head = bigint(row[0])
	r.calls, r.positions, r.types = int4s(row[1]), int8s(row[2]), texts(row[3])
	r.again = row[4][0] != 0
}
