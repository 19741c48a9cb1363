// Package pgtest gives tests a real PostgreSQL: one private server per test
// process, started when first asked for, and in it a fresh database per test.
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

// shared is the process's server; databases counts the databases made in it.
var (
	shared    = newOnce(startShared)
	databases atomic.Int64
)

// Main runs the tests, stops the shared server, fails on leaked goroutines,
// and exits. It shortens the second for which programs that the tests start, built
// with the race detector, wait for races when they exit. m is a *testing.M, or calls one.
func Main(m interface{ Run() int }) {
	os.Setenv("GORACE", "atexit_sleep_ms=20 "+os.Getenv("GORACE"))
	code := m.Run()
	if err := shared.stop(); err != nil {
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
	srv, err := shared.get()
	if err == nil {
		err = admin(srv, "CREATE DATABASE examples TEMPLATE template0")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "pgtest: a database for the examples:", err)
		os.Exit(1)
	}
	os.Setenv("DATABASE_URL", urlOf(srv, "examples"))
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

// NewTemplate returns a Template of an empty database that prepare has filled. prepare
// is called when the first database is opened.
func NewTemplate(prepare func(context.Context, *pgxpool.Pool) error) *Template {
	return &Template{sync.OnceValues(func() (string, error) {
		srv, err := shared.get()
		if err != nil {
			return "", err
		}
		name := fmt.Sprintf("template_%d", databases.Add(1))
		if err := admin(srv, "CREATE DATABASE "+name+" TEMPLATE template0"); err != nil {
			return "", err
		}
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
		defer cancel()
		pool, err := pgxpool.New(ctx, urlOf(srv, name))
		if err != nil {
			return "", err
		}
		defer pool.Close() // a template must not have connections when it is copied
		return name, prepare(ctx, pool)
	})}
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
	srv, err := shared.get()
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	name := fmt.Sprintf("test_%d", databases.Add(1))
	if err := admin(srv, "CREATE DATABASE "+name+" TEMPLATE "+template); err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	db := DB{URL: urlOf(srv, name)}
	// Cleanups run last first: the test's own may still use the database.
	t.Cleanup(func() {
		if err := admin(srv, "DROP DATABASE "+name+" WITH (FORCE)"); err != nil {
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

func urlOf(srv *embedpg.Server, database string) string {
	return strings.Replace(srv.URL(), ":///tidewire?", ":///"+database+"?", 1)
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

// admin runs a statement that must not run in a transaction, on a new connection:
// a pool would leave goroutines behind.
func admin(srv *embedpg.Server, sql string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	conn, err := pgx.Connect(ctx, srv.URL())
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, sql)
	return err
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
