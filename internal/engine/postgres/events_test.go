package postgres

import (
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidewire/tidewire/internal/engine"
)

// TestEvents_QueryTakesTooLong: a query that PostgreSQL does not end in time is too expensive.
func TestEvents_QueryTakesTooLong(t *testing.T) {
	t.Parallel()
	db := migrated.Open(t)
	events := startEngine(t, db).events
	must(t, events.Create(t.Context(), "orders"))
	if _, err := events.Append(t.Context(), "orders", nil, []engine.Event{{Type: "A", Tags: []string{"x"}}}, nil); err != nil {
		t.Fatal(err)
	}
	var table string
	must(t, db.Pool.QueryRow(t.Context(), `SELECT max(relid::regclass::text) FROM pg_stat_user_tables WHERE relname LIKE 'event%tag%'`).Scan(&table))
	must(t, pgx.BeginFunc(t.Context(), db.Pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), `LOCK TABLE `+table)
		must(t, err)
		events.queryTimeout = 100 * time.Millisecond
		_, err = events.Query(t.Context(), "orders", engine.EventQuery{Items: []engine.EventItem{{Tags: []string{"x"}}}}, engine.EventRange{Limit: 10})
		public, _ := errors.AsType[*engine.Error](err)
		if public == nil || public.Code != engine.CodeTooExpensive {
			t.Errorf("%v, want ErrQueryTooExpensive", err)
		}
		return nil
	}))
}
