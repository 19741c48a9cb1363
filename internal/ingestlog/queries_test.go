package ingestlog

import (
	"context"
	"log/slog"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/pg"
	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/migrate"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

var migrated = pgtest.NewTemplate("ingestlog", func(ctx context.Context, pool *pgxpool.Pool) error {
	_, err := migrate.Up(ctx, pool)
	if err == nil {
		_, err = migrate.Ingest(ctx, pool, pg.DefaultTable)
	}
	return err
})

// TestQueries_Prepare: PostgreSQL can parse every statement on the migrated
// schema.
func TestQueries_Prepare(t *testing.T) {
	t.Parallel()
	db := migrated.Open(t)
	conn, err := db.Pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	inserter := newInserterSQL(pg.Table{Schema: "public", Name: pg.DefaultTable})
	maintainer, err := NewMaintainer(db.Pool, "", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	for name, sql := range map[string]string{
		"insertRowsSQL": insertRowsSQL("public.messages", 3), "ensureIngestSQL": ensureIngestSQL,
		"identifySQL": identifySQL, "endOwnSQL": endOwnSQL,
		"reserveFmt": inserter.reserve, "insertOneFmt": inserter.insertOne, "storedFmt": inserter.stored, "summariseFmt": maintainer.sql,
	} {
		if _, err := conn.Conn().PgConn().Prepare(t.Context(), "", sql, nil); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
