package cli_test

import (
	"context"
	"errors"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/cli"
	"github.com/tidewire/tidewire/internal/pg"
	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/internal/testkit"
	"github.com/tidewire/tidewire/migrate"
)

// migrated is a database with Tidewire's schema.
func migrated(t testing.TB) pgtest.DB {
	t.Helper()
	return upToDate.Open(t)
}

var upToDate = pgtest.NewTemplate("migrated", func(ctx context.Context, pool *pgxpool.Pool) error {
	_, err := migrate.Up(ctx, pool)
	return err
})

// onExisting are the commands that need an existing database, and create none.
var onExisting = [][]string{
	{"stream", "list"}, {"stream", "info", "s"}, {"stream", "replay", "s"}, {"stream", "tail", "s", "-n", "1"},
	{"stream", "publish", "s", "x"}, {"stream", "retain", "s"}, {"stream", "drop", "s", "--yes"},
	{"queue", "list"}, {"queue", "stats", "q"}, {"queue", "peek", "q"}, {"queue", "purge", "q", "--yes"}, {"queue", "drop", "q", "--yes"},
	{"events", "query"}, {"events", "tail", "-n", "1"}, {"events", "stats"}, {"db", "migrate", "--status"}, {"db", "migrate", "--dry-run"},
}

// TestCommands_MakeNoDatabase: without a private PostgreSQL, they say what to do,
// and create none.
func TestCommands_MakeNoDatabase(t *testing.T) {
	notShort(t)
	t.Parallel()
	data := dataDir(t)
	makers := [][]string{{"doctor"}, {"stream", "create", "orders"}, {"queue", "create", "jobs"}, {"events", "append", "--type", "Enrolled", "--store", "school"}}
	for _, args := range append(makers, onExisting...) {
		code, _, text := run(t, nil, append(args, "--data-dir", data)...)
		if code != cli.ExitDatabase || !strings.Contains(text, "tidewire serve") || !strings.Contains(text, "--database-url") {
			t.Errorf("%v: exit code %d, %q", args, code, text)
		}
		if _, err := os.Stat(data); !errors.Is(err, os.ErrNotExist) {
			t.Fatalf("%v made %s: %v", args, data, err)
		}
	}
}

// TestCommands_DoNotMigrate: a schema of another version, or none, stays unchanged.
func TestCommands_DoNotMigrate(t *testing.T) {
	notShort(t)
	t.Parallel()
	empty, older, newer := pgtest.Open(t), migrated(t), migrated(t)
	exec := func(pool *pgxpool.Pool, sql string) {
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	exec(older.Pool, `DELETE FROM tidewire.migration WHERE version = (SELECT max(version) FROM tidewire.migration)`)
	exec(newer.Pool, `INSERT INTO tidewire.migration (version, name) VALUES (9999, 'of the future')`)
	for _, c := range []struct {
		db   pgtest.DB
		text string
	}{{empty, "tidewire db migrate"}, {older, "tidewire db migrate"}, {newer, "newer tidewire"}} {
		before := schemaVersion(t, c.db)
		all := [][]string{{"queue", "create", "q"}, {"serve", "--port", "0", "--migrate=false"}, {"events", "stats"}}
		if c.db == newer { // no form of db migrate reports success
			all = append(all, [][]string{{"db", "migrate"}, {"db", "migrate", "--status"}, {"db", "migrate", "--dry-run"}, {"db", "migrate", "--status", "--table", "inbox"}}...)
		}
		if c.db == older { // the message for the others is the same
			all = append([][]string{{"stream", "create", "s"}, {"events", "append", "--type", "t"}, all[0], all[1]}, onExisting...)
		}
		for _, args := range all {
			code, out, text := run(t, nil, append(args, "--database-url", c.db.URL)...)
			if args[0] == "db" && c.db == older { // TestDB_Migrate checks its output
				continue
			}
			if code != cli.ExitDatabase || !strings.Contains(text, c.text) || strings.Contains(out, "nothing to apply") {
				t.Errorf("%v: exit code %d, %q, want %q", args, code, text, c.text)
			}
		}
		if after := schemaVersion(t, c.db); after != before {
			t.Errorf("the schema's version was %d, is %d", before, after)
		}
	}
}

// schemaVersion is -1 where there is no schema.
func schemaVersion(t *testing.T, db pgtest.DB) int {
	t.Helper()
	var there bool
	if err := db.Pool.QueryRow(t.Context(), `SELECT to_regnamespace('tidewire') IS NOT NULL`).Scan(&there); err != nil {
		t.Fatal(err)
	}
	if !there {
		return -1
	}
	s, err := migrate.Inspect(t.Context(), db.Pool)
	if err != nil {
		t.Fatal(err)
	}
	return s.Version
}

func TestDB_Migrate(t *testing.T) {
	notShort(t)
	t.Parallel()
	db := pgtest.Open(t)
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--status"}, "schema version: 0\n"},
		{[]string{"--dry-run"}, "would be applied: 0001_"},
		{[]string{"--status"}, "to be applied: 0001_"},
		{nil, "applied: 0001_"},
		{nil, "nothing to apply"},
		{[]string{"--dry-run"}, "would be made: table messages\n"},
		{[]string{"--dry-run", "--table="}, "nothing to apply"},
		{[]string{"--status", "--table", "inbox"}, "to be made: table inbox\n"},
		{[]string{"--dry-run", "--table", "inbox"}, "would be made: table inbox\n"},
		{[]string{"--table", "inbox"}, "made: table inbox\n"},
		{[]string{"--table", "inbox"}, "nothing to apply"},
		{[]string{"--table", "messages"}, "made: table messages\n"},
	} {
		code, out, text := run(t, nil, append([]string{"db", "migrate", "--database-url", db.URL}, c.args...)...)
		if code != cli.ExitOK || !strings.Contains(out, c.want) || strings.Contains(out, "table ") && strings.Contains(out, "nothing") {
			t.Errorf("%v: exit code %d, %q %q, want %q", c.args, code, out, text, c.want)
		}
	}
	p := serve(t, "--migrate=false", "--database-url", db.URL)
	if code := p.Stop(t); code != cli.ExitOK {
		t.Errorf("exit code %d", code)
	}
}

// TestCommands_Reserved: objects of the server cannot be changed from the shell.
func TestCommands_Reserved(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	if code, _, text := run(t, nil, "queue", "create", "jobs", "--database-url", db.URL); code != cli.ExitOK {
		t.Fatal(text)
	}
	for _, args := range [][]string{
		{"stream", "create", "tidewire.rooms"}, {"stream", "publish", "tidewire.rooms", "x"}, {"stream", "drop", "tidewire.rooms", "--yes"},
		{"stream", "tail", "s", "--group", "tidewire.g"}, {"queue", "create", "tidewire.q"}, {"events", "append", "--type", "t", "--store", "tidewire.e"},
		{"stream", "publish", "jobs", "x"}, {"stream", "drop", "jobs", "--yes"}, {"stream", "retain", "jobs"},
	} {
		code, _, text := run(t, nil, append(args, "--database-url", db.URL)...)
		if code != cli.ExitUsage || !strings.Contains(text, "reserved for the server") && !strings.Contains(text, "of a queue") {
			t.Errorf("%v: exit code %d, %q", args, code, text)
		}
	}
}

// TestServe_LeastRights: for a role without enough rights, the error lists all
// missing rights, as SQL that is sufficient.
func TestServe_LeastRights(t *testing.T) {
	t.Parallel()
	db := pgtest.Open(t)
	as, _ := appRole(t, db)
	exec := func(sql string) {
		t.Helper()
		execSQL(t, db, sql)
	}
	database := pgx.Identifier{strings.TrimPrefix(pathOf(t, db.URL), "/")}.Sanitize()
	exec("REVOKE ALL ON DATABASE " + database + " FROM PUBLIC")
	exec("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
	code, _, text := run(t, nil, "serve", "--port", "0", "--database-url", as)
	if code != cli.ExitDatabase || strings.Count(text, ";\n") < 3 {
		t.Fatalf("exit code %d, %q, want the SQL to run", code, text)
	}
	if n := schemaVersion(t, db); n != -1 {
		t.Errorf("the schema was made: version %d", n)
	}
	_, asked, _ := strings.Cut(text, "with:\n")
	exec(asked)
	p := serve(t, "--database-url", as)
	request(t, "POST", p.Addr, "/v1/streams/s", "")
	w := wireDial(t, p.Addr)
	w.ask(`{"type":"publish","stream":"s","payload":"x","id":1}`)
	if code := p.Stop(t); code != cli.ExitOK {
		t.Errorf("exit code %d", code)
	}
}

// TestServe_RightsWithNothingPending: what the role lacks in a restored database ends serve, with and without --migrate, the dry run
// and doctor, all with the same SQL.
func TestServe_RightsWithNothingPending(t *testing.T) {
	notShort(t)
	t.Parallel()
	db := pgtest.Open(t)
	as, role := appRole(t, db)
	database := pgx.Identifier{strings.TrimPrefix(pathOf(t, db.URL), "/")}.Sanitize()
	execSQL(t, db, "CREATE SCHEMA tidewire AUTHORIZATION "+role)
	execSQL(t, db, "GRANT CREATE ON SCHEMA public TO "+role)
	if code, _, text := run(t, nil, "db", "migrate", "--table", "messages", "--database-url", as); code != cli.ExitOK {
		t.Fatal(text)
	}
	execSQL(t, db, "REVOKE ALL ON DATABASE "+database+" FROM PUBLIC")
	execSQL(t, db, "ALTER SCHEMA tidewire OWNER TO CURRENT_USER")
	execSQL(t, db, "REVOKE INSERT ON tidewire.shared_message FROM "+role)
	execSQL(t, db, "ALTER TABLE public.messages OWNER TO CURRENT_USER")
	sql := []string{
		"GRANT TEMPORARY ON DATABASE " + database + " TO " + role + ";", "GRANT USAGE, CREATE ON SCHEMA tidewire TO " + role + ";",
		"GRANT ALL ON ALL TABLES IN SCHEMA tidewire TO " + role + ";", `ALTER TABLE "public"."messages" OWNER TO ` + role + ";",
	}
	for want, commands := range map[int][]string{
		cli.ExitDatabase: {"serve --port 0", "serve --port 0 --migrate=false", "db migrate", "db migrate --dry-run"},
		cli.ExitErrors:   {"doctor"},
	} {
		for _, command := range commands {
			args := append(strings.Fields(command), "--database-url", as)
			code, out, text := run(t, nil, args...)
			for _, grant := range sql[:3] {
				if code != want || !strings.Contains(out+text, grant+"\n") {
					t.Errorf("%s: exit code %d, %s%s, want %d and %s", command, code, out, text, want, grant)
				}
			}
			if command != "db migrate" && !strings.Contains(out+text, sql[3]+"\n") { // db migrate makes and needs no ingest table
				t.Errorf("%s: %s%s, want %s", command, out, text, sql[3])
			}
		}
	}
	for _, grant := range sql {
		execSQL(t, db, grant)
	}
	if code, _, text := run(t, nil, "db", "migrate", "--dry-run", "--database-url", as); code != cli.ExitOK {
		t.Errorf("exit code %d, %s", code, text)
	}
	p := serve(t, "--database-url", as)
	if code := p.Stop(t); code != cli.ExitOK {
		t.Errorf("exit code %d", code)
	}
}

// appRole creates a role without superuser rights, and returns the URL to connect
// as it, and its quoted name. The role is dropped after the test.
func appRole(t *testing.T, db pgtest.DB) (as, role string) {
	t.Helper()
	name := "app \"" + strings.TrimPrefix(pathOf(t, db.URL), "/") + "\""
	role = pgx.Identifier{name}.Sanitize()
	execSQL(t, db, "CREATE ROLE "+role)
	t.Cleanup(func() {
		for _, sql := range []string{"DROP OWNED BY " + role + " CASCADE", "DROP ROLE " + role} {
			_, err := db.Pool.Exec(context.Background(), sql)
			for err != nil && pg.Code(err) == "40P01" { // deadlock with transactions that an ended server has left
				_, err = db.Pool.Exec(context.Background(), sql)
			}
			if err != nil {
				t.Error(err)
			}
		}
	})
	option := url.QueryEscape("-c role=" + strings.ReplaceAll(name, " ", `\ `))
	return db.URL + "&options=" + strings.ReplaceAll(option, "+", "%20"), role
}

func pathOf(t *testing.T, raw string) string {
	t.Helper()
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	return u.Path
}

// TestServe_PermissionDenied: an error that waiting does not solve is not reported as temporary.
func TestServe_PermissionDenied(t *testing.T) {
	t.Parallel()
	db := pgtest.Open(t)
	as, role := appRole(t, db)
	execSQL(t, db, "CREATE SCHEMA tidewire AUTHORIZATION "+role)
	p := serve(t, "--table", "tidewire.messages", "--database-url", as)
	request(t, "POST", p.Addr, "/v1/streams/s", "")
	request(t, "POST", p.Addr, "/v1/queues/q", "")
	w := wireDial(t, p.Addr)
	asked := []string{
		`{"type":"publish","stream":"s","payload":"x","id":1}`,
		`{"type":"enqueue","queue":"q","payload":"x","id":1}`,
		`{"type":"append","events":[{"type":"e"}],"id":1}`,
	}
	for _, text := range asked {
		w.ask("%s", text)
	}
	execSQL(t, db, "REVOKE ALL ON ALL TABLES IN SCHEMA tidewire FROM "+role)
	for _, text := range asked {
		say(w.Conn, "%s", text)
		if m, err := w.next(); err != nil || m.Code != "database_refused" {
			t.Errorf("%s: %+v, %v", text, m, err)
		}
	}
	for path, body := range map[string]string{
		"/v1/streams": "", "/v1/streams/s": "", "/v1/streams/s/messages": "", "/v1/queues/q": "", "/v1/events": "",
	} {
		if status, text := request(t, "GET", p.Addr, path, body); status != 500 || !strings.Contains(text, "database_refused") {
			t.Errorf("GET %s: %d %s", path, status, text)
		}
	}
	p.Await(t, "permission denied")
	execSQL(t, db, "GRANT ALL ON ALL TABLES IN SCHEMA tidewire TO "+role)
	for _, text := range asked { // a failed lookup is remembered for a moment
		testkit.Eventually(t, text+" is answered after the grant", func() bool {
			say(w.Conn, "%s", text)
			m, err := w.next()
			if err != nil {
				t.Fatal(err)
			}
			return m.Type == "ok"
		})
	}
}
