package doctor

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/tidewire/tidewire/internal/pg"
	"github.com/tidewire/tidewire/migrate"
)

// lookRights checks the rights that the role needs, according to docs/decisions/0020.
func lookRights(ctx context.Context, s *session, f *findings) error {
	var lacks *migrate.RightsError
	err := migrate.Rights(ctx, s, s.cfg.Table)
	if err == nil && s.cfg.Table != "" {
		_, err = migrate.HasIngest(ctx, s, s.cfg.Table)
	}
	switch {
	case errors.As(err, &lacks):
		return s.lacks(ctx, f, lacks)
	case errors.Is(err, migrate.ErrForeignTable):
		f.add(Error, s.cfg.Table+" is not Tidewire's: /ws/ingest needs another table", "tidewire serve --table tidewire.messages").Advice = otherTable
		return nil
	case err != nil:
		return err
	}
	if sql, err := migrate.IdentitySQL(ctx, s); err != nil {
		return err
	} else if sql != "" {
		f.add(Warning, "a dump that is restored here goes unnoticed, and positions are used again: the role may not read the identifier of the cluster", sql).
			Advice = "Or run SELECT tidewire.begin_history() after each restore."
	}
	if !s.superuser || s.cfg.Private {
		f.ok("the role %s may do all that Tidewire needs", s.role)
		return nil
	}
	name := "tidewire"
	if s.role == name {
		name = "tidewire_server"
	}
	f.add(Note, "the role "+s.role+" is a superuser: Tidewire needs much less",
		"CREATE ROLE "+name+" LOGIN PASSWORD '…';", "GRANT TEMPORARY ON DATABASE "+quoted(s.database)+" TO "+name+";", "CREATE SCHEMA IF NOT EXISTS tidewire AUTHORIZATION "+name+";").
		Advice = "Where the schema exists, give it and all in it to that role: ALTER SCHEMA, TABLE, SEQUENCE, FUNCTION … OWNER TO."
	return nil
}

const otherTable = "Name the table of serve to doctor too, with --table; --table='' if no server serves /ws/ingest."

// lacks reports missing rights, and whether only those for the ingest table are missing.
func (s *session) lacks(ctx context.Context, f *findings, lacks *migrate.RightsError) error {
	var others *migrate.RightsError
	switch err := migrate.Rights(ctx, s, ""); {
	case err == nil:
		f.add(Error, fmt.Sprintf("the role %s lacks rights for the table %s of /ws/ingest", lacks.Role, s.cfg.Table), lacks.SQL...).
			Advice = "Or serve with --table tidewire.messages. " + otherTable
	case errors.As(err, &others):
		f.add(Error, fmt.Sprintf("the role %s lacks rights in the database %s", lacks.Role, lacks.Database), lacks.SQL...)
	default:
		return err
	}
	return nil
}

func lookSchema(ctx context.Context, s *session, f *findings) error {
	status, err := migrate.Inspect(ctx, s)
	if pg.Code(err) == "42501" { // the check of rights says what to do
		f.add(Warning, "the role "+s.role+" may not read the schema's version")
		return nil
	}
	if errors.Is(err, migrate.ErrDevelopment) {
		f.add(Error, "a development version of Tidewire has made this database").Advice = "It cannot be upgraded: use a new one, or give up what is in it with DROP SCHEMA tidewire CASCADE."
		return nil
	}
	if err != nil {
		return err
	}
	switch err := status.Err(); {
	case err == nil:
		f.ok("version %d, as this program needs", status.Version)
	case status.Version == 0:
		f.add(Note, "Tidewire's tables are not in this database yet", "tidewire db migrate")
	case errors.Is(err, migrate.ErrOlder):
		f.add(Warning, fmt.Sprintf("version %d, this program needs %d", status.Version, status.Latest), "tidewire db migrate").Advice = "End older programs first."
	default:
		f.add(Error, fmt.Sprintf("version %d, this program knows %d", status.Version, status.Latest)).Advice = "Use a newer tidewire."
	}
	return nil
}

const notChecked = "not checked: see the checks primary, rights and schema"

// lookStart rehearses the start of a server, in a transaction that is rolled back. It waits for no lock that is held for long.
func lookStart(ctx context.Context, s *session, f *findings) error {
	if err := migrate.Rights(ctx, s, s.cfg.Table); err != nil {
		f.add(Note, notChecked)
		return nil
	}
	status, err := migrate.Inspect(ctx, s)
	if err != nil || status.Err() != nil || s.inRecovery || s.settings["default_transaction_read_only"].value == "on" {
		f.add(Note, notChecked)
		return nil
	}
	tx, err := s.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	if err != nil {
		return err
	}
	defer rollback(tx)
	if _, err := tx.Exec(ctx, `SET LOCAL lock_timeout = '1s'`); err != nil {
		return err
	}
	switch err := migrate.Rehearse(ctx, tx, s.cfg.Table); {
	case err == nil:
		f.ok("a server would start")
	case errors.Is(err, migrate.ErrForeignTable):
		f.add(Note, notChecked)
	case pg.Code(err) == pg.CodeLockNotAvailable, pg.Code(err) == "":
		return err
	default:
		f.add(Error, oneLine(err)).Advice = "A server would end with this error."
	}
	return nil
}
