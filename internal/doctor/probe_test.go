package doctor

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/tidewire/tidewire/internal/pgtest"
)

// fake is a server that resembles PostgreSQL.
type fake struct {
	version string
	missing []string
	locks   func(held bool) bool // whether it grants a lock that is held, or free
	err     error
	held    bool
}

func (f *fake) Version(context.Context) (string, error) { return f.version, f.err }

func (f *fake) Missing(context.Context, []string) ([]string, error) { return f.missing, nil }

func (f *fake) TryLock(context.Context, int64) (bool, func(), error) {
	got := f.locks(f.held)
	f.held = f.held || got
	return got, func() { f.held = false }, nil
}

func TestProbe_Resembling(t *testing.T) {
	t.Parallel()
	proper := func(held bool) bool { return !held }
	for text, f := range map[string]*fake{
		"":                  {version: "PostgreSQL 18.3 on x86_64", locks: proper},
		"CockroachDB":       {version: "CockroachDB CCL v26.1.0", locks: proper},
		"YugabyteDB":        {version: "PostgreSQL 15.12-YB-2025.1.0.0-b0 on x86_64", locks: proper},
		"no setval":         {version: "PostgreSQL 16", missing: []string{"setval"}, locks: proper},
		"two connections":   {version: "PostgreSQL 18.3", locks: func(bool) bool { return true }},
		"nobody holds":      {version: "PostgreSQL 18.3", locks: func(bool) bool { return false }},
		"connection is cut": {version: "", err: errors.New("connection is cut")},
	} {
		err := Probe(t.Context(), f)
		switch {
		case text == "":
			if err != nil {
				t.Errorf("PostgreSQL is refused: %v", err)
			}
		case err == nil || !strings.Contains(err.Error(), text) || errors.Is(err, ErrNotPostgreSQL) == (f.err != nil):
			t.Errorf("%v, want %q", err, text)
		}
		if f.held {
			t.Errorf("%q: the lock was not released", text)
		}
	}
}

func TestProbePool(t *testing.T) {
	t.Parallel()
	db := pgtest.Open(t)
	if err := ProbePool(t.Context(), db.Pool); err != nil {
		t.Error(err)
	}
	// Locks that do not lock, on a server that otherwise is one.
	exec(t, db.Pool, `CREATE SCHEMA like_cockroach`, `CREATE FUNCTION like_cockroach.pg_try_advisory_xact_lock(bigint) RETURNS boolean LANGUAGE sql AS 'SELECT true'`)
	pretender := poolOf(t, db.URL+"&search_path=like_cockroach,pg_catalog")
	if err := ProbePool(t.Context(), pretender); !errors.Is(err, ErrNotPostgreSQL) || !strings.Contains(err.Error(), "two connections") {
		t.Errorf("%v, want that the locks do not lock", err)
	}
	r, err := Run(t.Context(), pretender.Config(), Config{})
	if err != nil || r.Worst != Error || len(r.Findings) != 1 || r.Findings[0].Advice == "" {
		t.Errorf("%+v, %v, want the one error", r, err)
	}
}
