package doctor

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/embedpg"
	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/migrate"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

var template = pgtest.NewTemplate("migrated", func(ctx context.Context, pool *pgxpool.Pool) error {
	_, err := migrate.Up(ctx, pool)
	return err
})

// strict are limits under which everything becomes a finding at once.
var strict = &limits{checkpoints: 2}

// on opens a doctor, which is closed with the test.
func on(t *testing.T, url string, cfg Config) *doctor {
	t.Helper()
	pc, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	d, err := open(t.Context(), pc, cfg.withDefaults())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.pool.Close)
	return d
}

// look runs one check again.
func (d *doctor) look(t *testing.T, name string) []Finding {
	t.Helper()
	d.settings = nil
	if err := d.within(t.Context(), d.lookAround); err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(checks, func(c check) bool { return c.name == name })
	return d.check(t.Context(), checks[i])
}

// finds waits until the check has a finding of that level with that text.
func (d *doctor) finds(t *testing.T, name string, level Level, text string) Finding {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		found := d.look(t, name)
		for _, f := range found {
			if f.Level == level && strings.Contains(f.Text, text) {
				return f
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: %+v, want %v with %q", name, found, level, text)
		}
	}
}

// mend runs the commands of a finding, and waits until the check does not report it any more.
func (d *doctor) mend(t *testing.T, admin *pgxpool.Pool, f Finding) {
	t.Helper()
	if len(f.Commands) == 0 {
		t.Fatalf("no command: %+v", f)
	}
	for _, sql := range f.Commands {
		if _, err := admin.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	d.pool.Reset() // settings count in new sessions
	first, _, _ := strings.Cut(f.Text, " ")
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		found := d.look(t, f.Check)
		if !slices.ContainsFunc(found, func(g Finding) bool { return g.Level >= f.Level && strings.HasPrefix(g.Text, first) }) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("after %q: %+v", f.Commands, found)
		}
	}
}

func poolOf(t *testing.T, url string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

func exec(t *testing.T, pool *pgxpool.Pool, statements ...string) {
	t.Helper()
	for _, sql := range statements {
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
}

// own starts a separate server for the test.
func own(t *testing.T) (*embedpg.Server, *pgxpool.Pool) {
	t.Helper()
	server := pgtest.Start(t)
	return server, poolOf(t, server.URL())
}
