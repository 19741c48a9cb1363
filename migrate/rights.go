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

// rightsSQL reads everything that Rights checks of the schema in one round trip. It uses no name that the role may not look up.
const rightsSQL = `
WITH object (owner, kind, usable) AS (
	SELECT c.relowner, 'ALL ON ALL TABLES', has_table_privilege(c.oid, 'SELECT') AND has_table_privilege(c.oid, 'INSERT')
			AND has_table_privilege(c.oid, 'UPDATE') AND has_table_privilege(c.oid, 'DELETE')
		FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE n.nspname = 'tidewire' AND c.relkind IN ('r', 'p')
	UNION ALL SELECT c.relowner, 'ALL ON ALL SEQUENCES', has_sequence_privilege(c.oid, 'USAGE') AND has_sequence_privilege(c.oid, 'UPDATE')
		FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE n.nspname = 'tidewire' AND c.relkind = 'S'
	UNION ALL SELECT p.proowner, 'EXECUTE ON ALL FUNCTIONS', has_function_privilege(p.oid, 'EXECUTE')
		FROM pg_proc AS p JOIN pg_namespace AS n ON n.oid = p.pronamespace WHERE n.nspname = 'tidewire'
), stranger AS (
	SELECT DISTINCT r.rolname::text AS name, r.rolsuper AS super FROM object AS o JOIN pg_roles AS r ON r.oid = o.owner WHERE NOT pg_has_role(o.owner, 'USAGE')
)
SELECT current_user::text, current_database()::text,
	has_database_privilege(current_database(), 'TEMPORARY'),
	has_database_privilege(current_database(), 'CREATE'),
	s.oid IS NOT NULL,
	coalesce(has_schema_privilege(s.oid, 'USAGE') AND has_schema_privilege(s.oid, 'CREATE'), false),
	EXISTS (SELECT FROM stranger WHERE super),
	ARRAY(SELECT name FROM stranger WHERE NOT super ORDER BY 1),
	ARRAY(SELECT DISTINCT kind FROM object WHERE NOT usable AND pg_has_role(owner, 'USAGE') ORDER BY 1)
FROM (VALUES (1)) AS one LEFT JOIN pg_namespace AS s ON s.nspname = 'tidewire'`

// ingestRightsSQL reads what Rights checks of the ingest table. A table that is not Tidewire's needs no right: HasIngest rejects it.
const ingestRightsSQL = `
SELECT n.oid IS NOT NULL,
	coalesce(has_schema_privilege(n.oid, 'USAGE'), false),
	coalesce(has_schema_privilege(n.oid, 'CREATE'), false),
	t.oid IS NOT NULL,
	coalesce(ours AND NOT (pg_get_userbyid(t.relowner) = current_user OR t.relowner = m.relowner AND pg_has_role(t.relowner, 'USAGE')), false),
	coalesce(NOT ours OR has_table_privilege(t.oid, 'INSERT'), true)
FROM (VALUES (1)) AS one
LEFT JOIN pg_namespace AS n ON n.nspname = $1
LEFT JOIN pg_class AS t ON t.relnamespace = n.oid AND t.relname = $2
LEFT JOIN (pg_class AS m JOIN pg_namespace AS s ON s.oid = m.relnamespace AND s.nspname = 'tidewire') ON m.relname = 'migration'
CROSS JOIN LATERAL (SELECT t.relkind = 'r' AND 2 = (SELECT count(*) FROM pg_attribute AS a WHERE a.attrelid = t.oid AND NOT a.attisdropped
	AND (a.attname, a.atttypid) IN (('position', 'bigint'::regtype), ('payload', 'bytea'::regtype))) AS ours) AS look`

// ownFmt gives all objects of the schema to a role. It is for objects of a superuser: a GRANT of that role would make a superuser.
// The sequence of an identity column follows its table.
const ownFmt = `DO $own$ DECLARE object text; BEGIN FOR object IN ` +
	`SELECT 'TABLE ' || c.oid::regclass FROM pg_class AS c WHERE c.relnamespace = 'tidewire'::regnamespace AND c.relkind IN ('r', 'p', 'v', 'S') ` +
	`AND NOT (c.relkind = 'S' AND EXISTS (SELECT FROM pg_depend AS d WHERE d.objid = c.oid AND d.deptype IN ('a', 'i'))) ` +
	`UNION ALL SELECT 'ROUTINE ' || p.oid::regprocedure FROM pg_proc AS p WHERE p.pronamespace = 'tidewire'::regnamespace ` +
	`LOOP EXECUTE 'ALTER ' || object || ' OWNER TO %s'; END LOOP; END $own$;`

// Rights checks whether the role may migrate the schema, or make it, and do what a server does, and changes nothing. A server
// too makes tables in the schema, and segments of tables that exist. So the role needs temporary tables; the schema tidewire, or the
// right to make it; and if there are objects in it, they must belong to the role, or to a role of which it is a member. If a
// table is named, it is the ingest table, which the role has to own too, or be able to make. The error is a *RightsError that
// names everything that is missing.
func Rights(ctx context.Context, db DB, table string) error {
	e := &RightsError{}
	var temporary, create, exists, usable, super bool
	var owners, unusable []string
	err := db.QueryRow(ctx, rightsSQL).Scan(&e.Role, &e.Database, &temporary, &create, &exists, &usable, &super, &owners, &unusable)
	if err != nil {
		return fmt.Errorf("look at the role's rights: %w", err)
	}
	to := pgx.Identifier{e.Role}.Sanitize()
	if !temporary {
		e.lacks("GRANT TEMPORARY ON DATABASE %s TO %s;", pgx.Identifier{e.Database}.Sanitize(), to)
	}
	switch {
	case !exists && !create:
		e.lacks("CREATE SCHEMA tidewire AUTHORIZATION %s;", to)
	case exists && !usable:
		e.lacks("GRANT USAGE, CREATE ON SCHEMA tidewire TO %s;", to)
	}
	if super {
		e.lacks(ownFmt, strings.ReplaceAll(to, "'", "''"))
	}
	for _, owner := range owners {
		e.lacks("GRANT %s TO %s;", pgx.Identifier{owner}.Sanitize(), to)
	}
	for _, all := range unusable {
		e.lacks("GRANT %s IN SCHEMA tidewire TO %s;", all, to)
	}
	if table != "" {
		if err := e.ofIngest(ctx, db, table, to); err != nil {
			return err
		}
	}
	if e.SQL == nil {
		return nil
	}
	return e
}

// ofIngest adds what the role lacks to make the ingest table, or to fill it.
func (e *RightsError) ofIngest(ctx context.Context, db DB, table, to string) error {
	t, err := parseTable(table)
	if err != nil {
		return err
	}
	var schema, usage, create, exists, foreign, insert bool
	if err := db.QueryRow(ctx, ingestRightsSQL, t.Schema, t.Name).Scan(&schema, &usage, &create, &exists, &foreign, &insert); err != nil {
		return fmt.Errorf("look at the role's rights on table %s: %w", t, err)
	}
	in := pgx.Identifier{t.Schema}.Sanitize()
	switch {
	case t.Schema == "tidewire": // is checked as a whole
	case !schema:
		e.lacks("CREATE SCHEMA %s AUTHORIZATION %s;", in, to)
	case !exists && !(usage && create):
		e.lacks("GRANT USAGE, CREATE ON SCHEMA %s TO %s;", in, to)
	case !usage:
		e.lacks("GRANT USAGE ON SCHEMA %s TO %s;", in, to)
	}
	switch {
	case foreign:
		e.lacks("ALTER TABLE %s OWNER TO %s;", t.Quoted(""), to)
	case !insert:
		e.lacks("GRANT ALL ON TABLE %s TO %s;", t.Quoted(""), to)
	}
	return nil
}

func (e *RightsError) lacks(sql string, args ...any) {
	e.SQL = append(e.SQL, fmt.Sprintf(sql, args...))
}
