package migrate

import (
	"context"
	"errors"
	"fmt"

	"github.com/tidewire/tidewire/internal/pg"
)

// ErrOlder: migrations have to be applied first.
var ErrOlder = errors.New("migrate: database schema is older than this program needs")

// Status says which migrations a database has.
type Status struct {
	// Version is the number of the last migration that was applied; 0 if none was.
	Version int
	// Latest is the number of the last migration that this program has.
	Latest int
	// Pending are the names of the migrations after Version, in order.
	Pending []string
}

// Err returns why the schema cannot be used: ErrOlder, ErrNewer, or nil.
func (s Status) Err() error {
	switch {
	case s.Version > s.Latest:
		return newer(s.Version, s.Latest)
	case s.Version < s.Latest:
		return fmt.Errorf("%w: version %d, this program needs %d", ErrOlder, s.Version, s.Latest)
	}
	return nil
}

func newer(version, latest int) error {
	return fmt.Errorf("%w: version %d, this program knows %d; use a newer tidewire", ErrNewer, version, latest)
}

// Inspect reads which migrations a database has, and changes nothing. If a development version has made the database, the error
// is ErrDevelopment.
func Inspect(ctx context.Context, db DB) (Status, error) {
	all, err := load()
	if err != nil {
		return Status{}, err
	}
	current, err := version(ctx, db, all)
	return statusOf(all, current), err
}

func statusOf(all []migration, current int) Status {
	s := Status{Version: current, Latest: all[len(all)-1].version}
	for _, m := range all {
		if m.version > current {
			s.Pending = append(s.Pending, m.name)
		}
	}
	return s
}

// errDryRun ends the transaction of a dry run.
var errDryRun = errors.New("dry run")

// ingestTableSQL returns whether any object has the table's name or its view's, and
// whether it belongs to Tidewire: the rule of tidewire.ensure_ingest_table, for a
// database that does not have that function yet.
const ingestTableSQL = `
SELECT t.oid IS NOT NULL OR to_regclass(format('%I.%I', $1::text, $2 || '_text')) IS NOT NULL,
	EXISTS (SELECT FROM pg_class AS c WHERE c.oid = t.oid AND (pg_get_userbyid(c.relowner) = current_user
			OR c.relowner = (SELECT m.relowner FROM pg_class AS m WHERE m.oid = to_regclass('tidewire.migration'))))
		AND to_regclass(format('%I.%I', $1::text, $2 || '_position_seq')) IS NOT NULL
		AND 2 = (SELECT count(*) FROM pg_attribute AS a WHERE a.attrelid = t.oid AND NOT a.attisdropped
			AND (a.attname, a.atttypid) IN (('position', 'bigint'::regtype), ('payload', 'bytea'::regtype)))
FROM (SELECT to_regclass(format('%I.%I', $1::text, $2::text)) AS oid) AS t`

// HasIngest reports whether the table that Ingest makes exists, and changes
// nothing. The database need not be migrated. Errors: ErrForeignTable and
// ErrTable, as for Ingest.
func HasIngest(ctx context.Context, db DB, table string) (there bool, err error) {
	t, err := parseTable(table)
	if err != nil {
		return false, err
	}
	var taken bool
	if err := db.QueryRow(ctx, ingestTableSQL, t.Schema, t.Name).Scan(&taken, &there); err != nil {
		return false, fmt.Errorf("look for table %s: %w", t, err)
	}
	if taken && !there {
		return false, fmt.Errorf("%w: %s or %s_text", ErrForeignTable, t, t)
	}
	return there, nil
}

func parseTable(name string) (pg.Table, error) {
	t, err := pg.ParseTable(name)
	if err != nil {
		return t, fmt.Errorf("%w: %w", ErrTable, err)
	}
	return t, nil
}
