package migrate

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// RightsError says which rights the role of a connection lacks, and how to grant them.
type RightsError struct {
	Role, Database string
	// SQL has the statements that an administrator has to run.
	SQL []string
}

func (e *RightsError) Error() string {
	return fmt.Sprintf("migrate: the role %q lacks rights in database %q; an administrator grants them with:\n  %s",
		e.Role, e.Database, strings.Join(e.SQL, "\n  "))
}

// rightsSQL reads everything that Rights checks in one round trip.
const rightsSQL = `
SELECT current_user::text, current_database()::text,
	has_database_privilege(current_database(), 'TEMPORARY'),
	has_database_privilege(current_database(), 'CREATE'),
	s.oid IS NOT NULL,
	coalesce(has_schema_privilege(s.oid, 'USAGE') AND has_schema_privilege(s.oid, 'CREATE'), false),
	coalesce(NOT pg_has_role(current_user, m.relowner, 'USAGE'), false),
	coalesce(pg_get_userbyid(m.relowner)::text, ''),
	coalesce((SELECT has_schema_privilege(p.oid, 'USAGE') AND has_schema_privilege(p.oid, 'CREATE')
		FROM pg_namespace p WHERE p.nspname = 'public'), false)
FROM (VALUES (1)) AS one
LEFT JOIN pg_namespace s ON s.nspname = 'tidewire'
LEFT JOIN pg_class m ON m.relnamespace = s.oid AND m.relname = 'migration'`

// Rights checks whether the role may make and migrate the schema and work with
// it, and changes nothing. The role needs temporary tables; the schema tidewire,
// or the right to make it; if its tables exist, they must belong to the role, or
// to a role of which it is a member; and, if public is true, the right to make
// tables in the schema public. The error is a *RightsError that names everything
// that is missing.
func Rights(ctx context.Context, db DB, public bool) error {
	var role, database, owner string
	var temporary, create, exists, usable, foreign, inPublic bool
	err := db.QueryRow(ctx, rightsSQL).Scan(&role, &database, &temporary, &create, &exists, &usable, &foreign, &owner, &inPublic)
	if err != nil {
		return fmt.Errorf("look at the role's rights: %w", err)
	}
	to, in := pgx.Identifier{role}.Sanitize(), pgx.Identifier{database}.Sanitize()
	var missing []string
	lacks := func(sql string, args ...any) { missing = append(missing, fmt.Sprintf(sql, args...)) }
	if !temporary {
		lacks("GRANT TEMPORARY ON DATABASE %s TO %s;", in, to)
	}
	switch {
	case !exists && !create:
		lacks("CREATE SCHEMA tidewire AUTHORIZATION %s;", to)
	case exists && !usable:
		lacks("GRANT USAGE, CREATE ON SCHEMA tidewire TO %s;", to)
	}
	if foreign {
		lacks("GRANT %s TO %s;", pgx.Identifier{owner}.Sanitize(), to)
	}
	if public && !inPublic {
		lacks("GRANT USAGE, CREATE ON SCHEMA public TO %s;", to)
	}
	if missing == nil {
		return nil
	}
	return &RightsError{Role: role, Database: database, SQL: missing}
}
