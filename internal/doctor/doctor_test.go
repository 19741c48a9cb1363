package doctor

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/pg"
	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/migrate"
)

// TestRun_Healthy: every check runs, and none but "version" warns on a server with default settings.
func TestRun_Healthy(t *testing.T) {
	t.Parallel()
	server, admin := own(t)
	if _, err := migrate.Up(t.Context(), admin); err != nil {
		t.Fatal(err)
	}
	pc, err := pgxpool.ParseConfig(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	r, err := Run(t.Context(), pc, Config{})
	if err != nil || r.Database != "tidewire" || r.Server != server.Version() || r.Role != "tidewire" {
		t.Fatalf("%+v, %v", r, err)
	}
	var made []string
	for _, f := range r.Findings {
		if made = append(made, f.Check); f.Level >= Warning && f.Check != "version" || strings.Contains(f.Text, "not checked") {
			t.Errorf("%+v", f)
		}
	}
	if made = slices.Compact(made); !slices.Equal(made, Names()) {
		t.Errorf("checks %q, want %q", made, Names())
	}
	if pc.ConnConfig.RuntimeParams["application_name"] != "" {
		t.Error("the caller's configuration was changed")
	}
}

// TestNames_Documented: the document has a line for each check, and no others.
func TestNames_Documented(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/how-to/doctor.md")
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for line := range strings.Lines(string(text)) {
		if name, ok := strings.CutPrefix(line, "| `"); ok {
			name, _, _ = strings.Cut(name, "`")
			lines = append(lines, name)
		}
	}
	if !slices.Equal(lines, Names()) {
		t.Errorf("documented are %q, want %q", lines, Names())
	}
}

// TestCheck_Fails: a check that writes, takes too long, lacks rights or fails becomes a note.
func TestCheck_Fails(t *testing.T) {
	t.Parallel()
	db := pgtest.Open(t)
	d := on(t, db.URL, Config{Timeout: 3 * time.Second})
	if err := d.within(t.Context(), d.lookAround); err != nil {
		t.Fatal(err)
	}
	run := func(sql string) check {
		return check{"x", func(ctx context.Context, s *session, _ *findings) error { _, err := s.Exec(ctx, sql); return err }}
	}
	for sql, text := range map[string]string{
		`CREATE TABLE t (n int)`:      "read-only transaction",
		`SELECT pg_sleep(60)`:         "longer than 3s",
		`SELECT 1 / 0`:                "division by zero",
		`SET LOCAL ROLE pg_monitor; `: "",
	} {
		f := d.check(t.Context(), run(sql))
		if len(f) != 1 || f[0].Check != "x" || !strings.Contains(f[0].Text, text) || (f[0].Level == OK) != (text == "") {
			t.Errorf("%s: %+v, want a note with %q", sql, f, text)
		}
	}
	denied := d.check(t.Context(), check{"x", func(ctx context.Context, s *session, _ *findings) error {
		_, err := s.Exec(ctx, `DO $$ BEGIN RAISE insufficient_privilege; END $$`)
		if pg.Code(err) != "42501" {
			return errors.New("not denied")
		}
		return err
	}})
	if len(denied) != 1 || denied[0].Level != Note || !slices.Equal(denied[0].Commands, []string{`GRANT pg_monitor TO "tidewire";`}) {
		t.Errorf("%+v, want the right to grant", denied)
	}
	if _, err := d.pool.Exec(t.Context(), `SELECT 1`); err != nil {
		t.Error(err)
	}
}

// TestRun_Total: checks for which no time is left are named.
func TestRun_Total(t *testing.T) {
	t.Parallel()
	db := pgtest.Open(t)
	d := on(t, db.URL, Config{Total: -time.Second})
	r, err := d.run(t.Context())
	if err != nil || len(r.Findings) != len(Names()) || r.Findings[len(checks)].Level != Note {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestRun_Unreachable(t *testing.T) {
	t.Parallel()
	pc, err := pgxpool.ParseConfig("postgres://x@127.0.0.1:1/x")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Run(t.Context(), pc, Config{}); err == nil {
		t.Error("no error")
	}
}
