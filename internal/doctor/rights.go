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
	if err := migrate.Rights(ctx, s, false); errors.As(err, &lacks) {
		f.add(Error, fmt.Sprintf("the role %s lacks rights in the database %s", lacks.Role, lacks.Database), lacks.SQL...)
		return nil
	} else if err != nil {
		return err
	}
	if err := migrate.Privileges(ctx, s); errors.As(err, &lacks) {
		f.add(Error, fmt.Sprintf("the role %s may not use all tables, sequences and functions of the schema tidewire", s.role), lacks.SQL...)
		return nil
	} else if err != nil {
		return err
	}
	if s.superuser && !s.cfg.Private {
		name := "tidewire"
		if s.role == name {
			name = "tidewire_server"
		}
		f.add(Note, "the role "+s.role+" is a superuser: Tidewire needs much less",
			"CREATE ROLE "+name+" LOGIN PASSWORD '…';", "GRANT TEMPORARY ON DATABASE "+quoted(s.database)+" TO "+name+";", "CREATE SCHEMA IF NOT EXISTS tidewire AUTHORIZATION "+name+";").
			Advice = "Where the schema exists, give it and all in it to that role: ALTER SCHEMA, TABLE, SEQUENCE, FUNCTION … OWNER TO."
		return nil
	}
	return s.rightsInPublic(ctx, f)
}

// rightsInPublic checks the rights in the schema public, where only the table of /ws/ingest is made, by default.
func (s *session) rightsInPublic(ctx context.Context, f *findings) error {
	there, err := migrate.HasIngest(ctx, s, "messages")
	if errors.Is(err, migrate.ErrForeignTable) {
		f.add(Note, "public.messages is not Tidewire's: /ws/ingest needs another table", "tidewire serve --table tidewire.messages")
		return nil
	}
	if err != nil {
		return err
	}
	var lacks *migrate.RightsError
	if err := migrate.Rights(ctx, s, !there); errors.As(err, &lacks) {
		f.add(Note, "enough, but for the table of /ws/ingest in the schema public", lacks.SQL...).Advice = "Or serve with --table tidewire.messages."
		return nil
	} else if err != nil {
		return err
	}
	f.ok("the role %s may do all that Tidewire needs", s.role)
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

// lookStart rehearses the start of a server, in a transaction that is rolled back. It waits for no lock that is held for long.
func lookStart(ctx context.Context, s *session, f *findings) error {
	status, err := migrate.Inspect(ctx, s)
	if err != nil || status.Err() != nil || s.inRecovery || s.settings["default_transaction_read_only"].value == "on" {
		f.add(Note, "not checked: see the checks primary, rights and schema")
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
	switch err := migrate.Rehearse(ctx, tx, ""); {
	case err == nil:
		f.ok("a server would start")
	case pg.Code(err) == pg.CodeLockNotAvailable, pg.Code(err) == "" && !errors.As(err, new(*migrate.RightsError)):
		return err
	default:
		f.add(Error, oneLine(err)).Advice = "A server would end with this error."
	}
	return nil
}
