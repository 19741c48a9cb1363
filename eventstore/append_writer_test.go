package eventstore

import (
	"context"
	"errors"
	"fmt"
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
