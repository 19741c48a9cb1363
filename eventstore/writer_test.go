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

// TestAppend_AbandonedWhileLookedUp: Close gives up when a batch was refused
// because of an id, and the writer is about to ask of whose event.
func TestAppend_AbandonedWhileLookedUp(t *testing.T) {
	t.Parallel()
	_, s := prepared(t)
	ctx, abandon := context.WithCancel(t.Context())
	abandon()
	for _, constraint := range []string{fmt.Sprintf("events_%d_id_key", s.id), fmt.Sprintf("producer_%d_0_pkey", s.lock())} {
		c := newCall([]Event{{Type: "T", ID: "id"}}, 100, nil, &s.popular)
		c.producer = Producer{ID: "p", Sequence: 1}
		w := newWriter(s)
		w.blame(ctx, batch{calls: []*call{c}, segment: w.tail.segment()},
			&pgconn.PgError{Code: pg.CodeUniqueViolation, ConstraintName: constraint}, false)
		if got := <-c.done; !errors.Is(got.err, ErrAbandoned) {
			t.Errorf("%s: %v, want ErrAbandoned: an earlier attempt may have stored it", constraint, got.err)
		}
	}
}

// TestWriter_ShortestLockTimeout: PostgreSQL takes 0 for no bound at all.
func TestWriter_ShortestLockTimeout(t *testing.T) {
	t.Parallel()
	db, _ := prepared(t)
	w := newWriter(reopen(t, db, Config{LockTimeout: time.Microsecond}))
	if err := w.connect(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer w.close()
	var bound string
	if err := w.conn.QueryRow(t.Context(), `SHOW lock_timeout`).Scan(&bound); err != nil || bound != "1ms" {
		t.Errorf("lock_timeout %s, %v, want 1ms", bound, err)
	}
}
