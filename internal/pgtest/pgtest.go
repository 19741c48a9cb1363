// Package pgtest gives tests a real PostgreSQL, and in it a fresh database per test. The
// server is that of the test run, which TIDEWIRE_TEST_SERVER names (see the program run in
// this folder), or else one of the test process, started when first asked for.
//
// TIDEWIRE_TEST_PG chooses which PostgreSQL: empty for the machine's newest or
// else a fetched one, "15" for that major version, installed or else fetched,
// "fetch:14" for a fetched one, "system:15" for an installed one, or a
// directory with initdb and postgres.
//
// A test package calls Main from its TestMain:
//
//	func TestMain(m *testing.M) { pgtest.Main(m) }
package pgtest

import (
	"context"
	"flag"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/tidewire/tidewire/internal/embedpg"
)

// DB is a separate database for one test.
type DB struct {
	URL  string
	Pool *pgxpool.Pool
}

// ServerVariable names the environment variable with the URL of the server of a test run.
const ServerVariable = "TIDEWIRE_TEST_SERVER"

// own is the process's server, if the test run has none; databases counts the databases made.
var (
	own       = newOnce(startShared)
	databases atomic.Int64
)

// shared returns the URL of the server of the test run, or of the process's own.
func shared() (string, error) {
	if url := os.Getenv(ServerVariable); url != "" {
		return url, nil
	}
	srv, err := own.get()
	if err != nil {
		return "", err
	}
	return srv.URL(), nil
}

// begun distinguishes the databases of this process from those of others, also of one that had the same number.
var begun = strconv.FormatInt(time.Now().UnixNano(), 36)

// newName returns a name that no other database of the server has.
func newName(kind string) string { return fmt.Sprintf("%s_%s_%d", kind, begun, databases.Add(1)) }

// Main runs the tests, stops the process's server, fails on leaked goroutines,
// and exits. It shortens the second for which programs that the tests start, built
// with the race detector, wait for races when they exit. m is a *testing.M, or calls one.
func Main(m interface{ Run() int }) {
	os.Setenv("GORACE", "atexit_sleep_ms=20 "+os.Getenv("GORACE"))
	code := m.Run()
	if err := own.stop(); err != nil {
		fmt.Fprintln(os.Stderr, "pgtest: stop PostgreSQL:", err)
		code = max(code, 1)
	}
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, "pgtest:", err)
			code = 1
		}
	}
	os.Exit(code)
}

// Examples sets DATABASE_URL to an empty database while the tests run, for the programs in a package's documentation.
// Call it before Main.
func Examples() {
	name := newName("examples")
	srv, err := shared()
	if err == nil {
		err = createDatabase(srv, name, "template0")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "pgtest: a database for the examples:", err)
		os.Exit(1)
	}
	os.Setenv("DATABASE_URL", urlOf(srv, name))
}

// SideBySide sets the number of parallel tests per processor, unless -parallel is given.
// It is for packages whose tests spend most of their time waiting. Call it before Main.
func SideBySide(perProcessor int) {
	flag.Parse()
	asked := false
	flag.Visit(func(f *flag.Flag) { asked = asked || f.Name == "test.parallel" })
	if !asked {
		flag.Set("test.parallel", strconv.Itoa(perProcessor*runtime.GOMAXPROCS(0)))
	}
}

// Open creates an empty database and a pool on it; both end with the test.
func Open(t testing.TB) DB {
	t.Helper()
	// template0, because CREATE DATABASE fails while anyone is connected to
	// its template, and nobody can connect to template0.
	return openFrom(t, "template0")
}

// Template makes copies of a prepared database, which is faster than to prepare each
// database. Safe for concurrent use.
type Template struct{ name func() (string, error) }

// NewTemplate returns a Template of an empty database that prepare has filled. prepare is
// called when the first database is opened. Processes that share a server share the
// Templates of one name, so prepare has to be the same in all of them.
func NewTemplate(name string, prepare func(context.Context, *pgxpool.Pool) error) *Template {
	return &Template{sync.OnceValues(func() (string, error) {
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
		defer cancel()
		return makeTemplate(ctx, "template_"+name, prepare)
	})}
}

// makeTemplate makes a template unless the server has it.
func makeTemplate(ctx context.Context, name string, prepare func(context.Context, *pgxpool.Pool) error) (string, error) {
	srv, err := shared()
	if err != nil {
		return "", err
	}
	conn, err := pgx.Connect(ctx, srv)
	if err != nil {
		return "", err
	}
	defer conn.Close(ctx) // which releases the lock
	if _, err := conn.Exec(ctx, "SELECT pg_advisory_lock(hashtext($1))", name); err != nil {
		return "", err
	}
	var made bool
	if err := conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)", name).Scan(&made); err != nil || made {
		return name, err
	}
	unfinished := newName("unfinished")
	if _, err := conn.Exec(ctx, "CREATE DATABASE "+unfinished+" TEMPLATE template0"); err != nil {
		return "", err
	}
	if err := fill(ctx, urlOf(srv, unfinished), prepare); err != nil {
		return "", err
	}
	_, err = conn.Exec(ctx, "ALTER DATABASE "+unfinished+" RENAME TO "+name)
	return name, err
}

// fill calls prepare with a pool that is closed afterwards: a template must not have connections when it is copied.
func fill(ctx context.Context, url string, prepare func(context.Context, *pgxpool.Pool) error) error {
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return err
	}
	defer pool.Close()
	return prepare(ctx, pool)
}

// Open is the function Open with a copy of the Template's database.
func (p *Template) Open(t testing.TB) DB {
	t.Helper()
	name, err := p.name()
	if err != nil {
		t.Fatalf("pgtest: prepare a database: %v", err)
	}
	return openFrom(t, name)
}

func openFrom(t testing.TB, template string) DB {
	t.Helper()
	srv, err := shared()
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	name := newName("test")
	if err := createDatabase(srv, name, template); err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	db := DB{URL: urlOf(srv, name)}
	// Cleanups run last first: the test's own may still use the database.
	t.Cleanup(func() {
		if err := dropDatabase(srv, name); err != nil {
			t.Errorf("pgtest: %v", err)
		}
	})
	db.Pool, err = pgxpool.New(t.Context(), db.URL)
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	t.Cleanup(db.Pool.Close)
	return db
}

// urlOf returns the URL of another database of a server.
func urlOf(srv, database string) string {
	return strings.Replace(srv, ":///tidewire?", ":///"+database+"?", 1)
}

// Start starts a separate server, for a test that kills or restarts PostgreSQL.
// It has PostgreSQL's default settings, and the database that its URL names. Servers
// of this function are copies: all have the same system identifier.
func Start(t testing.TB) *embedpg.Server {
	t.Helper()
	return startFor(t, config(), start)
}

// StartOther is Start for a server with a system identifier of its own: it is no copy
// of the others.
func StartOther(t testing.TB) *embedpg.Server {
	t.Helper()
	return startFor(t, config(), startNew)
}

// startFor starts a server that ends with the test.
func startFor(t testing.TB, cfg embedpg.Config, start func(embedpg.Config, string) (*instance, error)) *embedpg.Server {
	t.Helper()
	inst, err := start(cfg, MemoryDir())
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("PostgreSQL said:\n%s", inst.lastWords())
		}
		if err := inst.stop(); err != nil {
			t.Errorf("pgtest: stop PostgreSQL: %v", err)
		}
	})
	return inst.server
}

// administrator is a connection for statements that must not run in a transaction: a new one for each would take
// as long as a copy of a database. A pool would leave goroutines behind.
var administrator struct {
	sync.Mutex
	conn *pgx.Conn
}

// administer calls do with the connection, which one caller has at a time.
func administer(srv string, do func(context.Context, *pgx.Conn) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	administrator.Lock()
	defer administrator.Unlock()
	if administrator.conn == nil || administrator.conn.IsClosed() {
		conn, err := pgx.Connect(ctx, srv)
		if err != nil {
			return err
		}
		administrator.conn = conn
	}
	return do(ctx, administrator.conn)
}

// createDatabase copies a template's files, where PostgreSQL can (from 15 on): to write them into the log, which is its
// default, takes twice as long.
func createDatabase(srv, name, template string) error {
	return administer(srv, func(ctx context.Context, conn *pgx.Conn) error {
		sql := "CREATE DATABASE " + name + " TEMPLATE " + template
		if !strings.HasPrefix(conn.PgConn().ParameterStatus("server_version"), "14") {
			sql += " STRATEGY file_copy"
		}
		_, err := conn.Exec(ctx, sql)
		return err
	})
}

func dropDatabase(srv, name string) error {
	return administer(srv, func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, "DROP DATABASE "+name+" WITH (FORCE)")
		return err
	})
}

// SetDefaults changes the default settings of new connections to the database. It
// resets db.Pool, so that its connections have them too.
func SetDefaults(t testing.TB, db DB, settings map[string]string) {
	t.Helper()
	for name, value := range settings {
		if name != "search_path" { // which is a list, and no string
			value = "'" + value + "'"
		}
		set := fmt.Sprintf(`DO $$ BEGIN EXECUTE format('ALTER DATABASE %%I SET %s = %%s', current_database(), $v$%s$v$); END $$`, name, value)
		if _, err := db.Pool.Exec(t.Context(), set); err != nil {
			t.Fatalf("pgtest: %v", err)
		}
	}
	db.Pool.Reset()
}
