package access

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/auth"
)

// FunctionConnections is how many connections a Function should have to the database: on a pool of its own, it cannot hold up anything else.
const FunctionConnections = 4

// functionTimeout bounds one call in the database. The caller's context ends first if it has waited for a connection.
const functionTimeout = 2 * time.Second

var functionName = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,62}\.[a-z_][a-z0-9_]{0,62}$`)

// ErrFunctionName: the name is not SCHEMA.NAME.
var ErrFunctionName = errors.New("name of an SQL function: want SCHEMA.NAME, in lower-case letters, digits and underscores")

// Function is an SQL function of the user's own that is asked when no rule grants a right:
//
//	FUNCTION schema.name(claims jsonb, verb text, kind text, name text) RETURNS boolean
//
// NULL means no. Safe for concurrent use.
type Function struct {
	pool   *pgxpool.Pool
	log    *slog.Logger
	name   string
	sql    string
	logged atomic.Int64 // Unix seconds
}

const functionSQL = `
SELECT p.oid IS NOT NULL AND p.prokind = 'f' AND NOT p.proretset AND p.prorettype = 'boolean'::regtype,
	coalesce(has_function_privilege(p.oid, 'EXECUTE') AND has_schema_privilege(p.pronamespace, 'USAGE'), false), current_user::text
FROM (SELECT to_regprocedure($1) AS oid) AS wanted LEFT JOIN pg_proc AS p ON p.oid = wanted.oid`

// CheckFunctionName returns ErrFunctionName unless the name can be that of a Function.
func CheckFunctionName(name string) error {
	if !functionName.MatchString(name) {
		return fmt.Errorf("%w: %q", ErrFunctionName, name)
	}
	return nil
}

// Open checks that there is the function, and that the role may call it.
func (f *Function) Open(ctx context.Context, pool *pgxpool.Pool, log *slog.Logger, name string) error {
	if err := CheckFunctionName(name); err != nil {
		return err
	}
	signature := name + "(jsonb,text,text,text)"
	var there, may bool
	var role string
	if err := pool.QueryRow(ctx, functionSQL, signature).Scan(&there, &may, &role); err != nil {
		return fmt.Errorf("look for the function %s: %w", name, err)
	}
	schema, _, _ := strings.Cut(name, ".")
	switch {
	case !there:
		return fmt.Errorf("there is no function %s that returns a boolean; create it, for example with:\n"+
			"  CREATE FUNCTION %s(claims jsonb, verb text, kind text, name text) RETURNS boolean\n  LANGUAGE sql STABLE AS $$ SELECT false $$;", signature, name)
	case !may:
		to := pgx.Identifier{role}.Sanitize()
		return fmt.Errorf("the role %s may not call the function %s; an administrator allows it with:\n  GRANT USAGE ON SCHEMA %s TO %s;\n  GRANT EXECUTE ON FUNCTION %s TO %s;",
			to, signature, schema, to, signature, to)
	}
	f.pool, f.log, f.name, f.sql = pool, log, name, `SELECT coalesce(`+name+`($1::jsonb, $2, $3, $4), false)`
	return nil
}

// Ask asks the function. An error is logged, at most once a second.
func (f *Function) Ask(ctx context.Context, q auth.Question) (may bool, err error) {
	if may, err = f.call(ctx, q); err != nil {
		if now := time.Now().Unix(); f.logged.Swap(now) != now {
			f.log.Warn("the SQL function on rights failed: requests get unavailable", "function", f.name,
				"verb", q.Verb, "kind", q.Kind, "name", q.Name, "error", err)
		}
	}
	return may, err
}

// call calls the function in one round trip. The timeout is set in the transaction, so that it works with poolers too.
func (f *Function) call(ctx context.Context, q auth.Question) (may bool, err error) {
	conn, err := f.pool.Acquire(ctx)
	if err != nil {
		return false, err
	}
	defer conn.Release() // which closes a connection with an open transaction
	batch := &pgx.Batch{}
	batch.Queue(`BEGIN`)
	batch.Queue(fmt.Sprintf(`SET LOCAL statement_timeout = %d`, functionTimeout.Milliseconds()))
	batch.Queue(f.sql, string(q.Claims), string(q.Verb), string(q.Kind), q.Name).QueryRow(func(row pgx.Row) error { return row.Scan(&may) })
	batch.Queue(`COMMIT`)
	if err := conn.SendBatch(ctx, batch).Close(); err != nil {
		if ctx.Err() == nil {
			conn.Exec(ctx, `ROLLBACK`) // keeps the connection
		}
		return false, err
	}
	return may, nil
}
