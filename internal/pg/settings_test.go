package pg_test

import (
	"context"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidewire/tidewire/internal/pg"
	"github.com/tidewire/tidewire/internal/pgtest"
)

// hostile are defaults of a database under which writers fail, or break their
// guarantees.
var hostile = map[string]string{
	"statement_timeout": "80s", "lock_timeout": "70s", "idle_in_transaction_session_timeout": "90s",
	"search_path": "public, pg_catalog", "standard_conforming_strings": "off", "client_encoding": "LATIN1",
	"synchronous_commit": "off",
}

func settings(t *testing.T, db pgx.Tx) map[string]string {
	t.Helper()
	got := make(map[string]string)
	for name := range hostile {
		var value string
		if err := db.QueryRow(t.Context(), `SELECT pg_catalog.current_setting($1)`, name).Scan(&value); err != nil {
			t.Fatal(err)
		}
		got[name] = value
	}
	return got
}

// TestWriterSettings: the settings that a transaction depends on are set under all
// defaults of the database, and end with the transaction.
func TestWriterSettings(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	for name, c := range map[string]struct {
		defaults, want map[string]string
		differ         bool
	}{
		"hostile": {hostile, map[string]string{
			"statement_timeout": "0", "lock_timeout": "3s", "idle_in_transaction_session_timeout": "1min",
			"search_path": "pg_catalog, pg_temp", "standard_conforming_strings": "on", "client_encoding": "LATIN1",
			"synchronous_commit": "local",
		}, true},
		"of an application": {map[string]string{
			"search_path": "app, public", "synchronous_commit": "remote_apply", "client_encoding": "UTF8",
		}, map[string]string{
			"statement_timeout": "0", "lock_timeout": "3s", "idle_in_transaction_session_timeout": "0",
			"search_path": "app, public", "standard_conforming_strings": "on", "client_encoding": "UTF8",
			"synchronous_commit": "remote_apply",
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.Open(t)
			pgtest.SetDefaults(t, db, c.defaults)
			conn, err := pgx.Connect(ctx, db.URL)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close(context.Background())
			inTx := func(do func(tx pgx.Tx)) {
				t.Helper()
				if err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error { do(tx); return nil }); err != nil {
					t.Fatal(err)
				}
			}
			var before, during map[string]string
			var called string
			inTx(func(tx pgx.Tx) { before = settings(t, tx) })
			write := func(tx pgx.Tx) {
				if _, err := tx.Exec(ctx, pg.WriterSettings(3*time.Second)); err != nil {
					t.Fatal(err)
				}
				during = settings(t, tx)
				if err := tx.QueryRow(ctx, `SELECT application_name FROM pg_stat_activity WHERE pid = pg_backend_pid()`).Scan(&called); err != nil {
					t.Fatal(err)
				}
			}
			inTx(write)
			if !maps.Equal(during, c.want) || called != pg.WriterName {
				t.Errorf("%q has %v, want %q with %v", called, during, pg.WriterName, c.want)
			}
			inTx(func(tx pgx.Tx) {
				if after := settings(t, tx); !maps.Equal(after, before) {
					t.Errorf("afterwards %v, want %v as before", after, before)
				}
			})

			perTransaction, err := pg.OpenWriter(ctx, conn, 3*time.Second)
			if err != nil {
				t.Fatal(err)
			}
			if (perTransaction != "") != c.differ {
				t.Errorf("OpenWriter wants %q after each BEGIN", perTransaction)
			}
			inTx(func(tx pgx.Tx) {
				if perTransaction != "" {
					write(tx)
				}
				if during = settings(t, tx); !maps.Equal(during, c.want) {
					t.Errorf("a writer has %v, want %v", during, c.want)
				}
			})
			inTx(func(tx pgx.Tx) {
				after := settings(t, tx)
				after["lock_timeout"] = before["lock_timeout"]
				if !maps.Equal(after, before) {
					t.Errorf("a pooler would lend a session with %v, want %v", after, before)
				}
			})
		})
	}
}

func TestWriterSettings_BoundIsNeverNone(t *testing.T) {
	t.Parallel()
	if sql := pg.WriterSettings(time.Microsecond); !strings.Contains(sql, "'lock_timeout', '1'") {
		t.Error(sql)
	}
}
