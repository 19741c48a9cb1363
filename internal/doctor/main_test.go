package doctor

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/embedpg"
	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/internal/testkit"
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
	var found []Finding
	i := -1
	defer func() {
		if i < 0 {
			t.Logf("%s: %+v, want %v with %q", name, found, level, text)
		}
	}()
	testkit.Eventually(t, "a finding of "+name, func() bool {
		found = d.look(t, name)
		i = slices.IndexFunc(found, func(f Finding) bool { return f.Level == level && strings.Contains(f.Text, text) })
		return i >= 0
	})
	return found[i]
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
	testkit.Eventually(t, "the commands mend: "+f.Text, func() bool {
		return !slices.ContainsFunc(d.look(t, f.Check), func(g Finding) bool { return g.Level >= f.Level && strings.HasPrefix(g.Text, first) })
	})
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
