// Package migrate brings a database to the schema that this version of Tidewire needs: it
// runs numbered, embedded SQL files, each in a separate transaction, under one advisory
// lock, so that several nodes may start at once. After the first release, a shipped file
// never changes; further changes are new files.
package migrate

import (
	"cmp"
	"context"
	"crypto/sha256"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidewire/tidewire/internal/pg"
)

//go:embed sql/*.sql
var files embed.FS

// Reasons why a database is not migrated.
var (
	// ErrNewer: a newer version of Tidewire has migrated this database.
	ErrNewer = errors.New("migrate: database schema is newer than this program")
	// ErrDevelopment: a version of Tidewire from before the first release has made this database. It cannot be upgraded.
	ErrDevelopment = errors.New("migrate: a development version of Tidewire has made this database, and it cannot be upgraded: " +
		"use a new database, or delete the data of Tidewire in it with DROP SCHEMA tidewire CASCADE")
	// ErrForeignTable: a table or view of that name exists and does not belong to Tidewire.
	ErrForeignTable = errors.New("migrate: table exists and is not Tidewire's")
	// ErrTable: the table name is invalid.
	ErrTable = errors.New("migrate: not a name for a table")
)

// CodeForeignTable is the SQLSTATE of ErrForeignTable.
const CodeForeignTable = "TW002"

// patience bounds the wait for another migrating node, and for locks.
const patience = 10 * time.Minute

const (
	// isolationSQL makes sure that the statements after lockSQL see what an
	// earlier node has committed: the database may have another default
	// isolation level.
	isolationSQL = `SET TRANSACTION ISOLATION LEVEL READ COMMITTED`
	// lockSQL waits for another node that is migrating. The key is "tidemigr".
	lockSQL = `SELECT pg_advisory_xact_lock(8388346167744358258)`
	// schemaSQL makes the schema only if there is none: IF NOT EXISTS needs the right
	// to make schemas even if an administrator has already made this one.
	schemaSQL = `
DO $$ BEGIN
	IF to_regnamespace('tidewire') IS NULL THEN
		CREATE SCHEMA tidewire;
	END IF;
END $$`
	prepareSQL = `
CREATE TABLE IF NOT EXISTS tidewire.migration (
	version int PRIMARY KEY,
	name text NOT NULL,
	applied_at timestamptz NOT NULL DEFAULT now()
)`
	existsSQL  = `SELECT to_regclass('tidewire.migration') IS NOT NULL`
	appliedSQL = `SELECT version, name FROM tidewire.migration ORDER BY version`
	currentSQL = `SELECT coalesce(max(version), 0) FROM tidewire.migration`
	recordSQL  = `INSERT INTO tidewire.migration (version, name) VALUES ($1, $2)`
	closeSQL   = `SELECT tidewire.close_functions()`

	ensureIngestSQL = `SELECT tidewire.ensure_ingest_table($1, $2)`
)

type migration struct {
	version int
	name    string
	sql     string
}

// record is what a database keeps of m: the name, and the beginning of the SHA-256 of its SQL. Until the first release files change,
// and a database that an earlier state of a file has made would lack what was mended since.
func (m migration) record() string {
	return fmt.Sprintf("%s %.4x", m.name, sha256.Sum256([]byte(m.sql)))
}

// Up applies the missing migrations and returns how many it applied. If none
// are missing, it only reads.
func Up(ctx context.Context, db DB) (int, error) {
	all, err := load()
	if err != nil {
		return 0, err
	}
	current, err := version(ctx, db, all)
	if err != nil {
		return 0, err
	}
	if last := all[len(all)-1].version; current > last {
		return 0, newer(current, last)
	}
	applied := 0
	for _, m := range all {
		if m.version <= current {
			continue
		}
		done, err := apply(ctx, db, m)
		if err != nil {
			return applied, explain(fmt.Errorf("migration %s: %w", m.name, err))
		}
		if done {
			applied++
		}
	}
	return applied, nil
}

// version returns the last migration that was applied, or 0.
func version(ctx context.Context, db DB, all []migration) (current int, err error) {
	var exists bool
	if err := db.QueryRow(ctx, existsSQL).Scan(&exists); err != nil {
		return 0, fmt.Errorf("look for migrations: %w", err)
	}
	if !exists {
		return 0, nil
	}
	rows, err := db.Query(ctx, appliedSQL)
	if err != nil {
		return 0, fmt.Errorf("read schema version: %w", err)
	}
	var name string
	development := false
	_, err = pgx.ForEachRow(rows, []any{&current, &name}, func() error {
		development = development || current < 1 || current <= len(all) && name != all[current-1].record()
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("read schema version: %w", err)
	}
	if development {
		return 0, ErrDevelopment
	}
	return current, nil
}

// apply runs m, unless another node has run it while this one waited for the lock.
func apply(ctx context.Context, db DB, m migration) (done bool, err error) {
	err = pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		if err := prepare(ctx, tx); err != nil {
			return err
		}
		var current int
		if err := tx.QueryRow(ctx, currentSQL).Scan(&current); err != nil {
			return err
		}
		if current >= m.version {
			return nil
		}
		done = true
		if _, err := tx.Exec(ctx, m.sql); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, closeSQL); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, recordSQL, m.version, m.record())
		return err
	})
	return done, err
}

// prepare begins a migrating transaction: it waits for other nodes, and makes the
// table that records migrations.
func prepare(ctx context.Context, tx pgx.Tx) error {
	if err := alone(ctx, tx); err != nil {
		return err
	}
	for _, sql := range []string{schemaSQL, prepareSQL} {
		if _, err := tx.Exec(ctx, sql); err != nil {
			return err
		}
	}
	return nil
}

// alone begins a transaction during which no other node migrates: it waits for a
// node that does.
func alone(ctx context.Context, tx pgx.Tx) error {
	for _, sql := range []string{isolationSQL, pg.WriterSettings(patience), lockSQL} {
		if _, err := tx.Exec(ctx, sql); err != nil {
			return err
		}
	}
	return nil
}

// Ingest makes the table of messages that package ingest fills, unless it exists, and returns whether it did. The
// name consists of lower-case letters, digits and underscores, at most 50, optionally with a schema and a dot
// before it; the default schema is public. The database must be migrated. An existing table is only read.
//
// Errors: ErrForeignTable if a table that does not belong to Tidewire has that
// name or its view's; ErrTable for an invalid name; ErrOlder and ErrNewer.
func Ingest(ctx context.Context, db DB, table string) (made bool, err error) {
	t, err := parseTable(table)
	if err != nil {
		return false, err
	}
	s, err := Inspect(ctx, db)
	if err = cmp.Or(err, s.Err()); err != nil {
		return false, err
	}
	err = pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		if err := alone(ctx, tx); err != nil {
			return err
		}
		return tx.QueryRow(ctx, ensureIngestSQL, t.Schema, t.Name).Scan(&made)
	})
	if err != nil {
		return false, explain(fmt.Errorf("table %s: %w", t, err))
	}
	return made, nil
}

func explain(err error) error {
	if pg.Code(err) == CodeForeignTable {
		return fmt.Errorf("%w: %v", ErrForeignTable, err)
	}
	return err
}

func load() ([]migration, error) {
	names, err := fs.Glob(files, "sql/*.sql") // sorted, and numbers have four digits
	if err != nil {
		return nil, err
	}
	all := make([]migration, 0, len(names))
	for i, path := range names {
		name := strings.TrimSuffix(strings.TrimPrefix(path, "sql/"), ".sql")
		number, _, _ := strings.Cut(name, "_")
		version, err := strconv.Atoi(number)
		if err != nil || version != i+1 {
			return nil, fmt.Errorf("migration file %s: want number %04d", path, i+1)
		}
		sql, err := files.ReadFile(path)
		if err != nil {
			return nil, err
		}
		all = append(all, migration{version, name, string(sql)})
	}
	return all, nil
}
