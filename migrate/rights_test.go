package migrate_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/migrate"
)

// TestRights: whatever the role lacks for a start with nothing to migrate is named, a dry run fails with it, and the SQL grants it,
// and no more.
func TestRights(t *testing.T) {
	t.Parallel()
	db := pgtest.Open(t)
	name := db.Pool.Config().ConnConfig.Database
	role, other := "server_"+name, "other_"+name
	names := strings.NewReplacer("DATABASE x", "DATABASE "+name, "server", role, "other", other)
	conn, err := db.Pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	admin := func(sql string) {
		t.Helper()
		if _, err := db.Pool.Exec(context.WithoutCancel(t.Context()), names.Replace(sql)); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	admin(`CREATE ROLE server; CREATE ROLE other; CREATE SCHEMA tidewire AUTHORIZATION server; GRANT CREATE ON SCHEMA public TO server`)
	defer admin(`DROP OWNED BY server, other CASCADE; DROP ROLE server, other`)
	defer conn.Exec(context.WithoutCancel(t.Context()), `RESET ROLE`)
	if _, err := conn.Exec(t.Context(), `SET ROLE `+role); err != nil {
		t.Fatal(err)
	}
	if _, err := migrate.Up(t.Context(), conn); err != nil {
		t.Fatal(err)
	}
	if _, err := migrate.Ingest(t.Context(), conn, "messages"); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ broken, table, grant string }{
		{`REVOKE TEMPORARY ON DATABASE x FROM PUBLIC`, "", `GRANT TEMPORARY ON DATABASE `},
		{`ALTER SCHEMA tidewire OWNER TO other`, "", `GRANT USAGE, CREATE ON SCHEMA tidewire TO `},
		{`REVOKE CREATE ON SCHEMA tidewire FROM server`, "", `GRANT USAGE, CREATE ON SCHEMA tidewire TO `},
		{`REVOKE INSERT ON tidewire.shared_message FROM server`, "", `GRANT ALL ON ALL TABLES IN SCHEMA tidewire TO `},
		{`REVOKE USAGE ON SEQUENCE tidewire.stream_id_seq FROM server`, "", `GRANT ALL ON ALL SEQUENCES IN SCHEMA tidewire TO `},
		{`REVOKE EXECUTE ON FUNCTION tidewire.enter_history FROM PUBLIC, server`, "", `GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA tidewire TO `},
		{`ALTER TABLE tidewire.shared_message OWNER TO other`, "", `GRANT "other" TO `},
		{`ALTER TABLE tidewire.shared_message OWNER TO CURRENT_USER; ALTER FUNCTION tidewire.enter_history OWNER TO CURRENT_USER`, "", ` OWNER TO "server"'`},
		{`REVOKE USAGE ON SCHEMA public FROM PUBLIC`, "messages", `GRANT USAGE ON SCHEMA public TO `},
		{`ALTER TABLE messages OWNER TO other`, "messages", `ALTER TABLE "public"."messages" OWNER TO `},
		{`ALTER TABLE messages OWNER TO CURRENT_USER`, "messages", `ALTER TABLE "public"."messages" OWNER TO `},
		{`REVOKE INSERT ON messages FROM server`, "messages", `GRANT ALL ON TABLE "public"."messages" TO `},
		{`DROP TABLE messages CASCADE; REVOKE CREATE ON SCHEMA public FROM server, PUBLIC`, "messages", `GRANT USAGE, CREATE ON SCHEMA "public" TO `},
		{`SELECT 1`, "inbox.messages", `CREATE SCHEMA "inbox" AUTHORIZATION `},
	} {
		admin(c.broken)
		grant := strings.ReplaceAll(names.Replace(c.grant), "SCHEMA public", `SCHEMA "public"`)
		var lacks *migrate.RightsError
		if err := migrate.Rights(t.Context(), conn, c.table); !errors.As(err, &lacks) || len(lacks.SQL) != 1 || !strings.Contains(lacks.SQL[0], grant) {
			t.Fatalf("%s: %v, want %s", c.broken, err, grant)
		}
		said := lacks.SQL
		if _, err := migrate.DryRun(t.Context(), conn, c.table); !errors.As(err, &lacks) || !slices.Equal(lacks.SQL, said) {
			t.Errorf("%s: the dry run: %v", c.broken, err)
		}
		if _, err := db.Pool.Exec(t.Context(), said[0]); err != nil {
			t.Fatalf("%s: %v", said[0], err)
		}
		if err := migrate.Rights(t.Context(), conn, c.table); err != nil {
			t.Fatalf("%s, after %s: %v", c.broken, said, err)
		}
		if _, err := migrate.DryRun(t.Context(), conn, c.table); err != nil {
			t.Errorf("%s, after %s: %v", c.broken, said, err)
		}
	}
	var super bool
	if err := db.Pool.QueryRow(t.Context(), fmt.Sprintf(`SELECT bool_or(rolsuper) FROM pg_roles WHERE pg_has_role('%s', oid, 'MEMBER')`, role)).Scan(&super); err != nil || super {
		t.Errorf("the role is a member of a superuser: %v, %v", super, err)
	}
}
