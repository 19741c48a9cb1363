package eventstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tidewire/tidewire/internal/pg"
)

// TestAppend_AbandonedWhileLookedUp: Close stops waiting after a batch was rejected
// because of an id, when the writer is about to look up the id's event.
func TestAppend_AbandonedWhileLookedUp(t *testing.T) {
	t.Parallel()
	_, s := prepared(t)
	ctx, abandon := context.WithCancel(t.Context())
	abandon()
	for _, constraint := range []string{fmt.Sprintf("events_%d_id_key", s.id), fmt.Sprintf("request_%d_0_pkey", s.lock())} {
		c := newCall([]Event{{Type: "T", ID: "id"}}, 100, nil, &s.frequency)
		c.request = RequestID{Client: "p", Sequence: 1}
		w := newWriter(s)
		w.blame(ctx, batch{calls: []*call{c}, segment: w.tail.segment()},
			&pgconn.PgError{Code: pg.CodeUniqueViolation, ConstraintName: constraint}, false)
		if got := <-c.done; !errors.Is(got.err, errAbandoned) {
			t.Errorf("%s: %v, want errAbandoned: an earlier attempt may have stored it", constraint, got.err)
		}
	}
}

// TestWriter_ShortestLockTimeout: PostgreSQL takes 0 for no bound at all.
func TestWriter_ShortestLockTimeout(t *testing.T) {
	t.Parallel()
	db, _ := prepared(t)
	s := reopen(t, db, Config{LockTimeout: time.Microsecond})
	if _, err := s.Append(t.Context(), Event{Type: "T"}); err != nil {
		t.Error(err)
	}
}

// TestWriter_OneRequestTwice: the repetitions of a request that has not been written wait, and are answered from what its transaction has stored.
func TestWriter_OneRequestTwice(t *testing.T) {
	t.Parallel()
	_, s := prepared(t)
	w := newWriter(s)
	defer w.on.Close()
	var pending []*call
	for _, sequence := range []int64{1, 2, 1, 1, 3} {
		c := newCall([]Event{{Type: "T"}}, 100, nil, &s.frequency)
		c.request = RequestID{Client: "p", Sequence: sequence}
		pending = append(pending, c)
	}
	first, second := pending[2], pending[3]
	b, waiting := w.assemble(t.Context(), pending)
	if len(b.calls) != 3 || !slices.Equal(waiting, []*call{first, second}) {
		t.Errorf("%d calls share a transaction, and %d wait; want 3, and the 2 repetitions", len(b.calls), len(waiting))
	}
}

// TestTail_OtherHistory: what was checked in a history that a failover has lost does not count, although its positions are the same.
func TestTail_OtherHistory(t *testing.T) {
	t.Parallel()
	end := func(position, writer int64) basis { return basis{position: position, writer: writer, number: position} }
	written := tail{maxEvents: 100, epoch: 1}
	for _, position := range []int64{5, 9} {
		written.extend(written.segment(), written.end.position, end(position, 1))
	}
	for _, c := range []struct {
		checked basis
		counts  bool
	}{{basis{}, true}, {end(5, 1), true}, {end(9, 1), true}, {end(5, 2), false}, {end(9, 2), false}, {end(7, 1), false}, {end(12, 2), true}} {
		if got := written.adopt(c.checked); got != c.counts {
			t.Errorf("a check up to %+v: %v, want %v", c.checked, got, c.counts)
		}
	}
	if written.start != 12 || written.end != end(12, 2) {
		t.Errorf("what others have written is not where the tail begins: %+v", written.end)
	}
	slow := &call{slowBasis: end(9, 2)}
	(&writer{}).distrust(batch{checked: []*call{slow}})
	if slow.slowBasis != (basis{}) {
		t.Errorf("a call still relies on %+v", slow.slowBasis)
	}
}
