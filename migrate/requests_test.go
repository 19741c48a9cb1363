package migrate_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/migrate"
	"github.com/tidewire/tidewire/stream"
)

// appendAsBefore29 stores one message for each sequence of a producer in a stream with
// tables of its own, and rotates the records before the last two.
func appendAsBefore29(t *testing.T, pool *pgxpool.Pool, s *stream.Stream) {
	t.Helper()
	exec := func(sql string, args ...any) {
		t.Helper()
		if _, err := pool.Exec(t.Context(), sql, args...); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	id := fmt.Sprint(s.ID())
	for n := range 3 {
		exec(`DO $$ BEGIN
			PERFORM tidewire.take_positions(` + id + `, 'tidewire.stream_` + id + `_position_seq', 1, 1000, ` + id + ` + ` + fmt.Sprint(n) + `);
			PERFORM tidewire.record_requests(` + id + `, 1, ARRAY['p'], ARRAY[` + fmt.Sprint(n) + `::bigint], ARRAY[0::bigint], ARRAY[1]);
			INSERT INTO tidewire.stream_` + id + ` (position, payload) VALUES (` + fmt.Sprint(n+1) + `, 'before');
		END $$`)
		exec(`UPDATE tidewire.producer_window SET since = since - interval '1 h'`)
		if n < 2 {
			exec(`SELECT tidewire.fold_requests($1, '30 min')`, s.ID())
			exec(`SELECT tidewire.swap_requests($1, '30 min')`, s.ID())
		}
	}
	exec(`UPDATE tidewire.producer_window SET since = clock_timestamp()`)
}

// TestUp_SharedRequests: streams whose producers have given them tables of their own stay as
// they are, and requests to others leave these shared.
func TestUp_SharedRequests(t *testing.T) {
	t.Parallel()
	db := pgtest.Open(t)
	if err := migrate.UpTo(t.Context(), db.Pool, 26); err != nil {
		t.Fatal(err)
	}
	shared, err := stream.Ensure(t.Context(), db.Pool, "shared", stream.Options{})
	if err != nil {
		t.Fatal(err)
	}
	own, err := stream.Ensure(t.Context(), db.Pool, "own", stream.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Pool.Exec(t.Context(), `SELECT tidewire.own_stream($1)`, own.ID()); err != nil {
		t.Fatal(err)
	}
	appendAsBefore29(t, db.Pool, own)
	role := grantee(t, db, "record_requests")
	if n, err := migrate.Up(t.Context(), db.Pool); err != nil || n == 0 {
		t.Fatalf("%d migrations, %v", n, err)
	}
	for _, s := range []*stream.Stream{own, shared} {
		a := stream.NewAppender(db.Pool, s, stream.AppenderConfig{})
		runs(t, a.Run)
		for sequence := range int64(5) { // the last two, and all to the other stream, are new
			stored, err := a.AppendAs(t.Context(), stream.RequestID{Client: "p", Sequence: sequence}, stream.Message{})
			if tooOld := s == own && sequence == 0; tooOld {
				if !errors.Is(err, stream.ErrSequenceTooOld) {
					t.Errorf("%s, %d: %+v, %v, want ErrSequenceTooOld", s.Name(), sequence, stored, err)
				}
				continue
			}
			known := s == own && sequence < 3
			if err != nil || stored.Duplicate != known || stored.Count != 1 || known && stored.First != sequence+1 {
				t.Errorf("%s, %d: %+v, %v", s.Name(), sequence, stored, err)
			}
		}
		if all, err := s.Read(t.Context(), 0, 10); err != nil || len(all) != 5 {
			t.Errorf("%s: %d messages, %v, want 5", s.Name(), len(all), err)
		}
		var stays bool
		if err := db.Pool.QueryRow(t.Context(), `SELECT shared FROM tidewire.stream WHERE id = $1`, s.ID()).Scan(&stays); err != nil || stays != (s == shared) {
			t.Errorf("%s: shared is %t, %v", s.Name(), stays, err)
		}
	}
	for _, function := range []string{"find_shared_requests(int[], text[], bigint[])", "record_shared_requests(int[], bigint[], text[], bigint[], int[])",
		"fold_shared_requests(interval, bigint, bigint)", "old_shared_requests()", "swap_shared_requests(bigint)", "drop_shared_requests(int)"} {
		var granted, public bool
		err := db.Pool.QueryRow(t.Context(), `SELECT has_function_privilege($1, 'tidewire.' || $2, 'EXECUTE'), has_function_privilege('pg_monitor', 'tidewire.' || $2, 'EXECUTE')`,
			role, function).Scan(&granted, &public)
		if err != nil || !granted || public {
			t.Errorf("%s: granted to who had record_requests: %t, to all: %t, %v", function, granted, public, err)
		}
	}
}

// grantee returns a role that may call the function.
func grantee(t *testing.T, db pgtest.DB, function string) (role string) {
	t.Helper()
	if err := db.Pool.QueryRow(t.Context(), `SELECT current_database() || '_node'`).Scan(&role); err != nil {
		t.Fatal(err)
	}
	for _, sql := range []string{`CREATE ROLE ` + role, `GRANT EXECUTE ON FUNCTION tidewire.` + function + ` TO ` + role} {
		if _, err := db.Pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		for _, sql := range []string{`DROP OWNED BY ` + role, `DROP ROLE ` + role} {
			if _, err := db.Pool.Exec(context.Background(), sql); err != nil {
				t.Error(err)
			}
		}
	})
	return role
}
