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

// TestWriter_OneRequestTwice: a repetition does not share a transaction with the first
// call, because PostgreSQL would reject the whole transaction.
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
