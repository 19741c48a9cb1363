package stream_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidewire/tidewire/internal/pg"
	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/stream"
)

// TestAppendTx_IdleCallerDelaysNobody keeps a publishing transaction open, at every
// isolation level: others append meanwhile, and get lower positions.
func TestAppendTx_IdleCallerDelaysNobody(t *testing.T) {
	t.Parallel()
	for _, level := range levels {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			db, s := ensureOwn(t)
			h, _ := runHub(t, db.Pool, stream.HubConfig{Poll: never})
			sub := subscribe(t, h, s, stream.After(0))
			a := notified(t, db.Pool, s, h)
			mustAppend(t, a, stream.Message{Payload: []byte("before")})
			idle := begin(t, db.Pool, level)
			publish(t, idle, s, "idle 1", "idle 2") // its snapshot is older than the following messages
			published := time.Now()
			for n := range 3 {
				mustAppend(t, a, stream.Message{Payload: fmt.Append(nil, n)})
			}
			var got []string
			for len(got) < 4 {
				page := next(t, sub)
				got = append(got, payloads(t, page, nil)...)
			}
			publish(t, idle, s, "idle 3")
			commitTx(t, idle)
			h.Notify(s)
			page := next(t, sub)
			wantPayloads(t, "in order", append(got, payloads(t, page, nil)...), "before", "0", "1", "2", "idle 1", "idle 2", "idle 3")
			if page[0].Position != 5 || page[0].Time.Before(published) {
				t.Errorf("position %d at %v, published at %v", page[0].Position, page[0].Time, published)
			}
			mustAppend(t, a, stream.Message{})
		})
	}
}

func TestAppendTx_StoresAsAppendDoes(t *testing.T) {
	t.Parallel()
	db, s := ensure(t)
	msgs := []stream.Message{
		{},
		{Key: "k", Headers: json.RawMessage(`{"b": [1, "ü"], "a": null}`), Payload: []byte{0, 0xff}},
		{Headers: json.RawMessage(`{}`), Payload: make([]byte, 3<<20)},
	}
	mustAppend(t, run(t, db.Pool, s, stream.AppenderConfig{}), msgs...)
	tx := begin(t, db.Pool, "")
	must(t, s.AppendTx(t.Context(), tx, msgs...))
	commitTx(t, tx)
	all := everything(t, s)
	for i := range all {
		all[i].Position, all[i].Time = 0, time.Time{}
	}
	if len(all) != 6 || asText(all[:3]) != asText(all[3:]) {
		t.Errorf("%d messages, not twice the same", len(all))
	}
}

func TestAppendTx_Refuses(t *testing.T) {
	t.Parallel()
	db, s := ensure(t)
	tx := begin(t, db.Pool, "")
	for name, msgs := range map[string][]stream.Message{
		"none": {}, "key": {{Key: "\xff"}}, "headers": {{Payload: []byte("x")}, {Headers: json.RawMessage(`[]`)}},
	} {
		if err := s.AppendTx(t.Context(), tx, msgs...); !errors.Is(err, stream.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", name, err)
		}
	}
	publish(t, tx, s, "the transaction goes on")
	late := begin(t, db.Pool, "")
	publish(t, late, s, "too late")
	commitTx(t, tx)
	must(t, stream.Drop(t.Context(), pools(t, db.URL, 1)[0], "orders"))
	if err := late.Commit(t.Context()); pg.Code(err) != "TW003" {
		t.Errorf("commit after the drop: %v, want TW003", err)
	}
	tx = begin(t, db.Pool, "")
	if err := s.AppendTx(t.Context(), tx, stream.Message{}); !errors.Is(err, stream.ErrNotFound) {
		t.Errorf("dropped stream: %v, want ErrNotFound", err)
	}
}

func TestPublish_InSQL(t *testing.T) {
	t.Parallel()
	db, s := ensure(t)
	const call = `SELECT tidewire.publish($1, $2, $3, $4)`
	exec(t, db.Pool, call, "orders", "k", `{"a": 1}`, []byte("one")) // autocommit
	exec(t, db.Pool, call, "orders", nil, nil, []byte{})
	exec(t, db.Pool, call, "orders", "", `{}`, []byte("three"))
	exec(t, db.Pool, `SELECT tidewire.publish('orders', 'k', NULL, n::text::bytea) FROM generate_series(1, 20) AS n`)
	all := everything(t, s)
	if len(all) != 23 || all[0].Key != "k" || string(all[0].Headers) != `{"a": 1}` || all[1].Headers != nil || all[2].Key != "" || string(all[22].Payload) != "20" {
		t.Errorf("stored %v", all)
	}
	for name, c := range map[string]struct {
		code string
		args []any
	}{
		"unknown stream": {"TW003", []any{"nobody's", nil, nil, []byte{}}},
		"no stream":      {"TW003", []any{nil, nil, nil, []byte{}}},
		"large payload":  {"TW004", []any{"orders", nil, nil, make([]byte, 1<<20+1)}},
		"no payload":     {"TW004", []any{"orders", nil, nil, nil}},
		"long key":       {"TW004", []any{"orders", strings.Repeat("ü", 513), nil, []byte{}}},
		"headers":        {"TW004", []any{"orders", nil, `[1]`, []byte{}}},
		"long headers":   {"TW004", []any{"orders", nil, `{"a":"` + strings.Repeat("x", 65536) + `"}`, []byte{}}},
	} {
		if _, err := db.Pool.Exec(t.Context(), call, c.args...); pg.Code(err) != c.code {
			t.Errorf("%s: %v, want %s", name, err, c.code)
		}
	}
}

// TestPublish_SessionsOfManyKinds runs statements of poolers and triggers in one
// session: none may lose a message or store a rolled-back one.
func TestPublish_SessionsOfManyKinds(t *testing.T) {
	t.Parallel()
	db, s := ensure(t)
	conn, err := db.Pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	var want []string
	for n, script := range [][]string{
		{`BEGIN`, `P lost`, `ROLLBACK`}, // with the temporary tables it made
		{`BEGIN`, `P `, `COMMIT`},
		{`BEGIN`, `P `, `P `, `ROLLBACK AND CHAIN`, `P `, `COMMIT`},
		{`DISCARD ALL`, `BEGIN`, `P `, `COMMIT`},
		{`BEGIN`, `SAVEPOINT a`, `P lost`, `ROLLBACK TO a`, `P `, `SAVEPOINT b`, `P lost`, `ROLLBACK TO b`, `COMMIT`},
		{`BEGIN`, `SET CONSTRAINTS ALL IMMEDIATE`, `P `, `P `, `SAVEPOINT a`, `P lost`, `ROLLBACK TO a`, `P `, `COMMIT`},
		{`BEGIN`, `SET LOCAL session_replication_role = replica`, `P `, `COMMIT`},
		{`BEGIN`, `P `, `SET CONSTRAINTS ALL IMMEDIATE`, `SET CONSTRAINTS ALL DEFERRED`, `P `, `COMMIT`},
		{`CREATE TABLE mine (payload text)`,
			`CREATE FUNCTION forward() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM tidewire.publish('orders', '', '{}', NEW.payload::bytea); RETURN NULL; END $$`,
			`CREATE CONSTRAINT TRIGGER forward AFTER INSERT ON mine DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION forward()`,
			`BEGIN`, `P `, `INSERT INTO mine VALUES ('forwarded')`, `COMMIT`},
		{`CREATE ROLE one_` + dbName(t, db), `CREATE ROLE two_` + dbName(t, db),
			`GRANT USAGE ON SCHEMA tidewire TO one_` + dbName(t, db) + `, two_` + dbName(t, db),
			`GRANT EXECUTE ON FUNCTION tidewire.publish TO one_` + dbName(t, db) + `, two_` + dbName(t, db),
			`DISCARD ALL`, `SET ROLE one_` + dbName(t, db), `BEGIN`, `P `, `SET ROLE two_` + dbName(t, db), `P `, `COMMIT`, `RESET ROLE`,
			`DROP OWNED BY one_` + dbName(t, db) + `, two_` + dbName(t, db), `DROP ROLE one_` + dbName(t, db) + `, two_` + dbName(t, db)},
	} {
		var pending []string
		for i, step := range script {
			switch {
			case strings.HasPrefix(step, "P "):
				payload := fmt.Sprint(n, " ", i, step[1:])
				exec(t, conn, `SELECT tidewire.publish('orders', NULL, NULL, $1)`, pgx.QueryExecModeExec, []byte(payload))
				if step == "P " {
					pending = append(pending, payload)
				}
				continue
			case strings.HasPrefix(step, "ROLLBACK AND"):
				pending = nil
			case strings.HasPrefix(step, "INSERT"):
				pending = append(pending, "forwarded")
			}
			exec(t, conn, step, pgx.QueryExecModeExec)
		}
		want = append(want, pending...)
	}
	wantPayloads(t, "stored", payloads(t, everything(t, s), nil), want...)
}

// TestPublish_Page: a role with the grants of docs/how-to/publish-from-sql.md, and no others, publishes as the page shows. A text in place of
// bytes does what the page warns of.
func TestPublish_Page(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/how-to/publish-from-sql.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```sql\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	if len(blocks) != 2 {
		t.Fatalf("the page has %d blocks of SQL, want the example and the grants", len(blocks))
	}
	db, s := ensure(t)
	role := "app_" + dbName(t, db)
	conn, err := db.Pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	exec(t, conn, `CREATE ROLE `+role)
	exec(t, conn, `GRANT USAGE ON SCHEMA tidewire TO `+role+`; SET ROLE `+role, pgx.QueryExecModeSimpleProtocol)
	if _, err := conn.Exec(t.Context(), `SELECT tidewire.publish('orders', NULL, NULL, '')`); pg.Code(err) != "42501" {
		t.Errorf("without a grant: %v, want permission denied", err)
	}
	exec(t, conn, `RESET ROLE`)
	exec(t, conn, strings.ReplaceAll(blocks[1][1], " app;", " "+role+";"), pgx.QueryExecModeSimpleProtocol)
	exec(t, conn, `CREATE TABLE public.orders (id int PRIMARY KEY, total numeric)`)
	exec(t, conn, `GRANT INSERT ON public.orders TO `+role)

	exec(t, conn, `SET ROLE `+role)
	exec(t, conn, blocks[0][1], pgx.QueryExecModeSimpleProtocol)
	exec(t, conn, `SELECT tidewire.publish('orders', NULL, NULL, '{"a":"C:\\temp"}')`)
	if _, err := conn.Exec(t.Context(), `SELECT tidewire.publish('orders', NULL, NULL, '{"a":"x\ny"}')`); pg.Code(err) != "22P02" {
		t.Errorf("another text with a backslash: %v, want that it is no bytea", err)
	}
	exec(t, conn, `RESET ROLE`)
	wantPayloads(t, "stored", payloads(t, everything(t, s), nil), `{"id":17,"total":9.50}`, `{"a":"C:\temp"}`)
	exec(t, conn, `DROP OWNED BY `+role)
	exec(t, conn, `DROP ROLE `+role)
}

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
	must(t, db.Pool.QueryRow(t.Context(), `SELECT id::text FROM tidewire.stream WHERE name = $1`, name).Scan(&id))
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
