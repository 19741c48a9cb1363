package doctor

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/pg"
	"github.com/tidewire/tidewire/internal/pgtest"
)

// as creates a role that is not a superuser, and returns the URL to connect as this role.
func as(t *testing.T, db pgtest.DB) (url_, role string) {
	t.Helper()
	u, err := url.Parse(db.URL)
	if err != nil {
		t.Fatal(err)
	}
	role = "app_" + strings.TrimPrefix(u.Path, "/")
	exec(t, db.Pool, "CREATE ROLE "+role)
	t.Cleanup(func() {
		for _, sql := range []string{"DROP OWNED BY " + role + " CASCADE", "DROP ROLE " + role} {
			if _, err := db.Pool.Exec(context.Background(), sql); err != nil {
				t.Error(err)
			}
		}
	})
	return db.URL + "&options=-c%20role%3D" + role, role
}

// TestRights: the rights that the findings' commands grant are enough.
func TestRights(t *testing.T) {
	t.Parallel()
	db := pgtest.Open(t)
	url, role := as(t, db)
	exec(t, db.Pool, `DO $$ BEGIN EXECUTE format('REVOKE ALL ON DATABASE %I FROM PUBLIC', current_database()); END $$`, "REVOKE CREATE ON SCHEMA public FROM PUBLIC")
	d := on(t, url, Config{Table: "messages"})
	d.finds(t, "schema", Note, "not in this database yet")
	d.mend(t, db.Pool, d.finds(t, "rights", Error, "lacks rights in the database"))
	exec(t, db.Pool, "REVOKE CREATE ON SCHEMA public FROM "+role)
	on(t, url, Config{}).finds(t, "rights", OK, role)
	f := d.finds(t, "rights", Error, "for the table messages of /ws/ingest")
	if !strings.Contains(f.Advice, "--table") {
		t.Errorf("%+v", f)
	}
	d.mend(t, db.Pool, f)
	d.finds(t, "rights", OK, role)
	for _, name := range []string{"size", "transactions"} {
		if f := d.finds(t, name, Note, "may not"); len(f.Commands) != 1 || f.Commands[0] != `GRANT pg_monitor TO "`+role+`";` {
			t.Errorf("%+v", f)
		}
	}
	exec(t, db.Pool, "GRANT pg_monitor TO "+role)
	d.finds(t, "size", OK, "the log")
	d.finds(t, "transactions", OK, "the longest")
}

// TestRights_OfTables: a role that owns nothing in a schema that a superuser has made, and one beside a table of another application.
func TestRights_OfTables(t *testing.T) {
	t.Parallel()
	db := template.Open(t)
	url, _ := as(t, db)
	d := on(t, url, Config{Table: "messages"})
	if found := d.look(t, "schema"); len(found) != 1 || found[0].Level != Warning || !strings.Contains(found[0].Text, "may not read") {
		t.Errorf("%+v", found)
	}
	d.finds(t, "start", Note, "see the checks primary, rights")
	exec(t, db.Pool, "GRANT CREATE ON SCHEMA public TO PUBLIC")
	d.mend(t, db.Pool, d.finds(t, "rights", Error, "lacks rights"))
	d.finds(t, "schema", OK, "as this program needs")
	d.finds(t, "start", OK, "would start")
	exec(t, db.Pool, "CREATE TABLE public.messages (mine int)")
	d.finds(t, "rights", Error, "is not Tidewire's")
}

// TestRights_Identifier: a role that may not read the cluster's identifier, so that a restored dump is not noticed.
func TestRights_Identifier(t *testing.T) {
	t.Parallel()
	db := template.Open(t)
	url, role := as(t, db)
	d := on(t, url, Config{})
	d.mend(t, db.Pool, d.finds(t, "rights", Error, "lacks rights"))
	exec(t, db.Pool, "REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC") // of this database
	d.mend(t, db.Pool, d.finds(t, "rights", Warning, "goes unnoticed"))
	d.finds(t, "rights", OK, role)
}

func TestSchema(t *testing.T) {
	t.Parallel()
	db := template.Open(t)
	d := on(t, db.URL, Config{})
	d.finds(t, "schema", OK, "as this program needs")
	if f := d.finds(t, "rights", Note, "superuser"); len(f.Commands) == 0 {
		t.Errorf("%+v", f)
	}
	exec(t, db.Pool, `INSERT INTO tidewire.migration (version, name) VALUES (9999, 'of the future')`)
	d.finds(t, "schema", Error, "9999")
	exec(t, db.Pool, `DELETE FROM tidewire.migration WHERE version = 9999 OR version = (SELECT max(version) FROM tidewire.migration WHERE version < 9999)`)
	if f := d.finds(t, "schema", Warning, "this program needs"); f.Commands[0] != "tidewire db migrate" {
		t.Errorf("%+v", f)
	}
}

// TestTimeouts: the command takes effect for all sources of a setting.
func TestTimeouts(t *testing.T) {
	t.Parallel()
	db := pgtest.Open(t)
	d := on(t, db.URL, Config{})
	d.finds(t, "timeouts", OK, "no ")
	pgtest.SetDefaults(t, db, map[string]string{"statement_timeout": "2s", "idle_session_timeout": "10min"})
	d.pool.Reset()
	d.finds(t, "timeouts", Note, "idle_session_timeout is 10m0s")
	d.mend(t, db.Pool, d.finds(t, "timeouts", Warning, "statement_timeout is 2s"))
	exec(t, db.Pool, `DO $$ BEGIN EXECUTE format('ALTER ROLE %I IN DATABASE %I SET statement_timeout = ''1min''', session_user, current_database()); END $$`)
	d.pool.Reset()
	d.mend(t, db.Pool, d.finds(t, "timeouts", Note, "statement_timeout is 1m0s"))
	client := on(t, db.URL+"&statement_timeout=3s", Config{})
	if f := client.finds(t, "timeouts", Warning, "statement_timeout is 3s"); !strings.Contains(f.Advice, "URL") || f.Commands != nil {
		t.Errorf("%+v", f)
	}
}

func TestPrimary_ReadOnly(t *testing.T) {
	t.Parallel()
	db := pgtest.Open(t)
	d := on(t, db.URL, Config{})
	d.finds(t, "primary", OK, "timeline 1")
	exec(t, db.Pool, `DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_read_only = on', current_database()); END $$`)
	d.pool.Reset()
	d.mend(t, db.Pool, d.finds(t, "primary", Error, "read-only"))
}

func TestTransactions(t *testing.T) {
	t.Parallel()
	db := pgtest.Open(t)
	url, role := as(t, db)
	lax, d, app := on(t, db.URL, Config{}), on(t, db.URL, Config{limits: strict}), on(t, url, Config{limits: strict})
	d.finds(t, "transactions", OK, "the longest")
	tx, err := db.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	exec(t, db.Pool, "SELECT 1")
	var pid int
	if err := tx.QueryRow(t.Context(), `SELECT pg_backend_pid()`).Scan(&pid); err != nil {
		t.Fatal(err)
	}
	f := d.finds(t, "transactions", Warning, "idle for")
	if f.Commands[0] != fmt.Sprintf("SELECT pg_terminate_backend(%d);", pid) {
		t.Errorf("%+v", f)
	}
	lax.finds(t, "transactions", OK, "the longest")
	app.finds(t, "transactions", Note, "the role "+role+" may not see")
	d.mend(t, db.Pool, f)
	tx.Rollback(t.Context())

	running := make(chan struct{})
	ctx, end := context.WithCancel(t.Context())
	go func() {
		defer close(running)
		db.Pool.Exec(ctx, `SELECT pg_sleep(600)`)
	}()
	d.mend(t, db.Pool, d.finds(t, "transactions", Warning, "in a transaction for"))
	end()
	<-running
}

func TestLocks(t *testing.T) {
	t.Parallel()
	db := pgtest.Open(t)
	d := on(t, db.URL, Config{limits: strict})
	d.finds(t, "locks", OK, "nobody waits")
	holder, err := db.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := holder.Exec(t.Context(), `SELECT pg_advisory_xact_lock(1)`); err != nil {
		t.Fatal(err)
	}
	waited := make(chan error)
	go func() {
		_, err := db.Pool.Exec(t.Context(), `SELECT pg_advisory_xact_lock(1)`)
		waited <- err
	}()
	d.mend(t, db.Pool, d.finds(t, "locks", Warning, "that pid"))
	if err := <-waited; err != nil {
		t.Error(err)
	}
	holder.Rollback(t.Context())
}

func TestVacuumAndIndexes(t *testing.T) {
	t.Parallel()
	db := template.Open(t)
	d := on(t, db.URL, Config{limits: &limits{deadRows: 500}})
	d.finds(t, "vacuum", OK, "no table")
	d.finds(t, "indexes", OK, "valid")
	exec(t, db.Pool, `CREATE TABLE tidewire.scratch (n int PRIMARY KEY) WITH (autovacuum_enabled = false)`,
		`INSERT INTO tidewire.scratch SELECT generate_series(1, 1000)`, `DELETE FROM tidewire.scratch`)
	db.Pool.Reset() // a session that ends tells what it has done
	d.mend(t, db.Pool, d.finds(t, "vacuum", Warning, "tidewire.scratch has 1000 dead rows"))
	exec(t, db.Pool, `ALTER TABLE tidewire.scratch SET UNLOGGED`)
	d.finds(t, "vacuum", Error, "1 table of the schema tidewire unlogged")
	exec(t, db.Pool, `UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'tidewire.scratch_pkey'::regclass`)
	d.mend(t, db.Pool, d.finds(t, "indexes", Warning, "tidewire.scratch_pkey"))
}

func TestConnections(t *testing.T) {
	t.Parallel()
	db := pgtest.Open(t)
	d := on(t, db.URL, Config{Connections: 2})
	d.finds(t, "connections", OK, "in use")
	most := d.settings["max_connections"].number
	if f := on(t, db.URL, Config{Connections: int(most)}).finds(t, "connections", Error, "a server takes"); f.Advice != needRestart || !strings.Contains(f.Commands[0], "max_connections") {
		t.Errorf("%+v", f)
	}
	exec(t, db.Pool, `DO $$ BEGIN EXECUTE format('ALTER DATABASE %I CONNECTION LIMIT 2', current_database()); END $$`)
	d.mend(t, db.Pool, d.finds(t, "connections", Warning, "the database admits 2"))
}

func TestClock(t *testing.T) {
	t.Parallel()
	db := pgtest.Open(t)
	on(t, db.URL, Config{}).finds(t, "clock", OK, "differs")
	for text, off := range map[string]time.Duration{"later": -time.Minute, "earlier": time.Minute} {
		d := on(t, db.URL, Config{Now: func() time.Time { return time.Now().Add(off) }})
		d.finds(t, "clock", Warning, text)
	}
}

func TestPoolerAndHosts(t *testing.T) {
	t.Parallel()
	db := pgtest.Open(t)
	d := on(t, db.URL, Config{})
	d.finds(t, "pooler", OK, "none")
	d.finds(t, "hosts", OK, "1 host")
	d.finds(t, "tls", OK, "this machine")
	two := strings.Replace(db.URL, "port=5432", "port=5432,5433", 1)
	host := on(t, db.URL, Config{}).pool.Config().ConnConfig.Host
	two = strings.Replace(two, "host="+url.QueryEscape(host), "host="+url.QueryEscape(host+","+host), 1)
	on(t, two, Config{}).finds(t, "hosts", Warning, "2 hosts")
	on(t, two+"&target_session_attrs=read-write", Config{}).finds(t, "hosts", OK, "2 hosts")
}

// database makes another database on the shared server.
func database(t *testing.T, db pgtest.DB, suffix, options string) (url string, err error) {
	t.Helper()
	name := db.Pool.Config().ConnConfig.Database
	if _, err := db.Pool.Exec(t.Context(), "CREATE DATABASE "+name+suffix+" TEMPLATE template0 "+options); err != nil {
		return "", err
	}
	t.Cleanup(func() {
		if _, err := db.Pool.Exec(context.Background(), "DROP DATABASE "+name+suffix+" WITH (FORCE)"); err != nil {
			t.Error(err)
		}
	})
	return strings.Replace(db.URL, "/"+name, "/"+name+suffix, 1), nil
}

func TestEncoding(t *testing.T) {
	t.Parallel()
	db := pgtest.Open(t)
	on(t, db.URL, Config{}).finds(t, "encoding", OK, "UTF8")
	ascii, err := database(t, db, "_ascii", "ENCODING 'SQL_ASCII' LOCALE 'C'")
	if err != nil {
		t.Fatal(err)
	}
	f := on(t, ascii, Config{}).finds(t, "encoding", Warning, "SQL_ASCII")
	if !strings.Contains(f.Commands[0], "ENCODING 'UTF8'") {
		t.Errorf("%+v", f)
	}
}

func TestCollation(t *testing.T) {
	t.Parallel()
	db := pgtest.Open(t)
	icu, err := database(t, db, "_icu", "LOCALE_PROVIDER icu ICU_LOCALE 'en'")
	if err != nil {
		t.Skip("this PostgreSQL has no version to look at:", err)
	}
	d := on(t, icu, Config{})
	d.finds(t, "collation", OK, "as it was")
	exec(t, db.Pool, `UPDATE pg_database SET datcollversion = '1' WHERE datname = current_database() || '_icu'`)
	admin, err := pgxpool.New(t.Context(), icu)
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	d.mend(t, admin, d.finds(t, "collation", Warning, "version 1 of the collation"))
}

// TestSession_ReadsOnly: what a check may do.
func TestSession_ReadsOnly(t *testing.T) {
	t.Parallel()
	db := template.Open(t)
	d := on(t, db.URL, Config{})
	err := d.within(t.Context(), func(ctx context.Context, s *session) error {
		_, err := s.Exec(ctx, `INSERT INTO tidewire.migration (version, name) VALUES (9999, 'x')`)
		return err
	})
	if pg.Code(err) != "25006" {
		t.Errorf("%v, want that the transaction is read-only", err)
	}
	var _ pgx.Tx = (*session)(nil)
}
