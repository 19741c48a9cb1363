package stream_test

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/tidewire/tidewire/internal/pg"
	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/stream"
)

// stranger returns a session of a role that may publish, make tables, and insert into a watched table, and no more.
func stranger(t *testing.T, db pgtest.DB) *pgx.Conn {
	t.Helper()
	role := "stranger_" + dbName(t, db)
	exec(t, db.Pool, strings.ReplaceAll(`CREATE ROLE #; GRANT USAGE ON SCHEMA tidewire TO #; GRANT EXECUTE ON FUNCTION tidewire.publish, tidewire.publish_batch, tidewire.write_change TO #;
		CREATE TABLE public.watched (id int PRIMARY KEY); GRANT INSERT ON public.watched TO #; GRANT CREATE ON SCHEMA public TO #;
		SELECT tidewire.watch('public.watched', 'orders')`, "#", role))
	conn, err := pgx.Connect(t.Context(), db.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.Close(context.Background())
		if _, err := db.Pool.Exec(context.Background(), `DROP OWNED BY `+role+`; DROP ROLE `+role); err != nil {
			t.Error(err)
		}
	})
	exec(t, conn, `SET ROLE `+role)
	return conn
}

// TestPublish_TablesOfAStranger: a role makes the temporary tables of the outbox before Tidewire does. Its trigger runs with no rights
// but its own, and no message is taken for published that is in its table.
func TestPublish_TablesOfAStranger(t *testing.T) {
	t.Parallel()
	const trap = `CREATE FUNCTION pg_temp.trap() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			INSERT INTO tidewire.access_acts (id, actor, act, target, detail) VALUES (1, current_user, 'trapped', '', '{}'); RETURN NEW; END $$;
		CREATE TRIGGER trap BEFORE INSERT ON `
	const outbox = `CREATE TEMPORARY TABLE tidewire_outbox (number bigint GENERATED ALWAYS AS IDENTITY, stream int, key text, headers jsonb, payload bytea);
		GRANT ALL ON pg_temp.tidewire_outbox TO PUBLIC; ` + trap + `pg_temp.tidewire_outbox FOR EACH ROW EXECUTE FUNCTION pg_temp.trap();`
	const due = `CREATE TEMPORARY TABLE tidewire_outbox_due (due boolean); GRANT ALL ON pg_temp.tidewire_outbox_due TO PUBLIC;`
	for name, tables := range map[string]string{
		"both":     outbox + due,
		"messages": outbox,
		"mark":     due + trap + `pg_temp.tidewire_outbox_due FOR EACH ROW EXECUTE FUNCTION pg_temp.trap()`,
		"a view":   `CREATE TEMPORARY VIEW tidewire_outbox AS SELECT 1`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, s := ensure(t)
			conn := stranger(t, db)
			exec(t, conn, tables, pgx.QueryExecModeSimpleProtocol)
			for _, call := range []string{
				`SELECT tidewire.publish('orders', NULL, NULL, 'x')`, `SELECT tidewire.publish_batch(` + idOf(t, db, "orders") + `, '{k}', '{NULL}', '{x}')`,
				`INSERT INTO public.watched VALUES (1)`,
			} {
				if _, err := conn.Exec(t.Context(), call); pg.Code(err) != "TW002" {
					t.Errorf("%s: %v, want TW002", call, err)
				}
			}
			exec(t, conn, `DISCARD TEMP`)
			exec(t, conn, `SELECT tidewire.publish('orders', NULL, NULL, 'published')`)
			wantPayloads(t, "stored", payloads(t, everything(t, s), nil), "published")
			if trapped := value[int](t, db.Pool, `SELECT count(*) FROM tidewire.access_acts`); trapped > 0 {
				t.Errorf("the trigger of the stranger ran %d times", trapped)
			}
		})
	}
}

func idOf(t *testing.T, db pgtest.DB, name string) (id string) {
	t.Helper()
	if err := db.Pool.QueryRow(t.Context(), `SELECT id::text FROM tidewire.stream WHERE name = $1`, name).Scan(&id); err != nil {
		t.Fatal(err)
	}
	return id
}

// TestPublishBatch_Refuses: a role with EXECUTE on publish_batch stores nothing that the Go package would not store.
func TestPublishBatch_Refuses(t *testing.T) {
	t.Parallel()
	db, _ := ensure(t)
	if _, err := stream.Ensure(t.Context(), db.Pool, "parts", stream.Options{Partitions: 2}); err != nil {
		t.Fatal(err)
	}
	const call = `SELECT tidewire.publish_batch((SELECT id FROM tidewire.stream WHERE name = $1), $2, $3::text[]::jsonb[], '{x}')`
	for what, c := range map[string]struct{ stream, code, key, headers string }{
		"key": {"orders", "TW004", strings.Repeat("k", 1025), `{}`}, "headers": {"orders", "TW004", "k", `{"a":"` + strings.Repeat("x", 65536) + `"}`},
		"array": {"orders", "TW004", "k", `[1]`}, "partitions": {"parts", "TW003", "k", `{}`},
	} {
		if _, err := db.Pool.Exec(t.Context(), call, c.stream, []string{c.key}, []string{c.headers}); pg.Code(err) != c.code {
			t.Errorf("%s: %v, want %s", what, err, c.code)
		}
	}
}

// TestPublish_IsDurable: a session that does not wait for the disk waits for it if it publishes. Otherwise a crash would give positions that
// readers have seen to other messages.
func TestPublish_IsDurable(t *testing.T) {
	t.Parallel()
	db, s := ensure(t)
	tx := begin(t, db.Pool, "")
	exec(t, tx, `SET LOCAL synchronous_commit = off`)
	publish(t, tx, s, "x")
	exec(t, tx, `SET CONSTRAINTS ALL IMMEDIATE`)
	if got := value[string](t, tx, `SHOW synchronous_commit`); got != "local" {
		t.Errorf("synchronous_commit is %s, want local", got)
	}
}

// TestPublish_StreamsOfTheServer: what is in the server's own streams is trusted, so no role writes there but by the functions for that.
func TestPublish_StreamsOfTheServer(t *testing.T) {
	t.Parallel()
	db, _ := ensure(t)
	if _, err := stream.Ensure(t.Context(), db.Pool, "tidewire.rooms", stream.Options{}); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Ensure(t.Context(), db.Pool, "jobs", stream.Options{}); err != nil {
		t.Fatal(err)
	}
	exec(t, db.Pool, `SELECT tidewire.ensure_queue(id, 5, '1 s', '1 min') FROM tidewire.stream WHERE name = 'jobs'`)
	conn := stranger(t, db)
	exec(t, conn, `CREATE TABLE public.own (id int)`)
	exec(t, conn, `CREATE TRIGGER forged AFTER INSERT ON public.own FOR EACH ROW EXECUTE FUNCTION tidewire.write_change('{"stream":"tidewire.rooms","key":"{}","old":true,"max":268435456,"primary":false,"partitioned":false}')`)
	for _, call := range []string{
		`SELECT tidewire.publish('tidewire.rooms', 'lobby', NULL, '{}')`,
		`SELECT tidewire.publish('jobs', NULL, NULL, 'x')`,
		`SELECT tidewire.publish_batch(` + idOf(t, db, "tidewire.rooms") + `, '{lobby}', '{NULL}', '{x}')`,
		`INSERT INTO public.own VALUES (1)`,
	} {
		if _, err := conn.Exec(t.Context(), call); pg.Code(err) != "TW004" {
			t.Errorf("%s: %v, want TW004", call, err)
		}
	}
}
