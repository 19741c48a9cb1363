package stream_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/tidewire/tidewire/internal/pg"
	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/stream"
)

// change is the payload of a watch's message.
type change struct {
	Op     string          `json:"op"`
	Schema string          `json:"schema"`
	Table  string          `json:"table"`
	Old    json.RawMessage `json:"old"`
	New    json.RawMessage `json:"new"`
	Large  bool            `json:"large"`
}

// watchedBy returns a database with a stream and what the SQL has made, which begins to watch.
func watchedBy(t *testing.T, opts stream.Options, sql ...string) (pgtest.DB, *stream.Stream) {
	t.Helper()
	db := setup(t)
	pgtest.SetDefaults(t, db, map[string]string{"search_path": "public"}) // the role has the name of Tidewire's schema
	s := ensureWith(t, db.Pool, "feed", opts)
	for _, line := range sql {
		exec(t, db.Pool, line)
	}
	return db, s
}

// wantChanges compares the messages of the stream, each as "key op old new", with null left out.
func wantChanges(t *testing.T, s *stream.Stream, want ...string) {
	t.Helper()
	var got []string
	for _, m := range everything(t, s) {
		var c change
		if err := json.Unmarshal(m.Payload, &c); err != nil {
			t.Fatalf("%s: %v", m.Payload, err)
		}
		line := []string{m.Key, c.Op}
		for _, row := range []json.RawMessage{c.Old, c.New} {
			if string(row) != "null" {
				line = append(line, string(row))
			}
		}
		if c.Large {
			line = append(line, "large")
		}
		got = append(got, strings.Join(line, " "))
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("changes:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestWatch_Changes: every kind of change is told, in its order, and only if it is committed.
func TestWatch_Changes(t *testing.T) {
	t.Parallel()
	for _, level := range levels {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			db, s := watchedBy(t, stream.Options{}, `CREATE TABLE orders (id int PRIMARY KEY, name text, twice int GENERATED ALWAYS AS (id * 2) STORED)`,
				`SELECT tidewire.watch('orders', 'feed')`)
			tx := begin(t, db.Pool, level)
			exec(t, tx, `INSERT INTO orders VALUES (1, 'a'), (2, 'b')`)
			exec(t, tx, `SAVEPOINT s; INSERT INTO orders VALUES (3, 'c'); ROLLBACK TO s`)
			exec(t, tx, `UPDATE orders SET name = 'x' WHERE id = 1`)
			exec(t, tx, `INSERT INTO orders VALUES (1, 'y'), (4, 'd') ON CONFLICT (id) DO UPDATE SET name = excluded.name`)
			exec(t, tx, `INSERT INTO orders VALUES (1, 'z') ON CONFLICT DO NOTHING`)
			exec(t, tx, `UPDATE orders SET id = 5 WHERE id = 4`)
			exec(t, tx, `DELETE FROM orders WHERE id = 2`)
			exec(t, tx, `TRUNCATE orders`)
			wantChanges(t, s)
			commitTx(t, tx)
			rolled := begin(t, db.Pool, level)
			exec(t, rolled, `INSERT INTO orders VALUES (9, 'no')`)
			rollBack(t, rolled)
			wantChanges(t, s,
				`1 insert {"id": 1, "name": "a", "twice": 2}`,
				`2 insert {"id": 2, "name": "b", "twice": 4}`,
				`1 update {"id": 1, "name": "a", "twice": 2} {"id": 1, "name": "x", "twice": 2}`,
				`1 update {"id": 1, "name": "x", "twice": 2} {"id": 1, "name": "y", "twice": 2}`,
				`4 insert {"id": 4, "name": "d", "twice": 8}`,
				`4 delete {"id": 4, "name": "d", "twice": 8}`,
				`5 insert {"id": 5, "name": "d", "twice": 10}`,
				`2 delete {"id": 2, "name": "b", "twice": 4}`,
				` truncate`)
		})
	}
}

func TestWatch_Options(t *testing.T) {
	t.Parallel()
	db, s := watchedBy(t, stream.Options{}, `CREATE TABLE orders (a int, b text, c text, d text, PRIMARY KEY (b, a))`,
		`SELECT tidewire.watch('orders', 'feed', columns => '{c}', events => '{update,delete}', old_rows => false)`,
		`INSERT INTO orders VALUES (1, 'x', 'c', 'd')`,
		`UPDATE orders SET d = 'not watched'`,
		`UPDATE orders SET c = 'new'`,
		`TRUNCATE orders`)
	wantChanges(t, s, `["x", 1] update {"a": 1, "b": "x", "c": "new"}`)
	exec(t, db.Pool, `SELECT tidewire.watch('orders', 'feed', key => '{d}', old_rows => false, max_bytes => 1024)`)
	exec(t, db.Pool, `INSERT INTO orders VALUES (1, 'x', repeat('c', 2000), 'd'), (2, 'x', '', repeat('d', 2000))`)
	exec(t, db.Pool, `DELETE FROM orders WHERE a = 1`)
	all := everything(t, s)
	if len(all) != 4 || !strings.HasPrefix(all[2].Key, "sha256:") || len(all[2].Key) != 71 {
		t.Fatalf("%d messages", len(all))
	}
	var large, gone change
	for i, c := range map[int]*change{1: &large, 3: &gone} {
		if err := json.Unmarshal(all[i].Payload, c); err != nil {
			t.Fatal(err)
		}
	}
	if !large.Large || string(large.New) != `{"d": "d"}` || string(gone.Old) != `{"d": "d"}` || gone.Large {
		t.Errorf("%+v, %+v", large, gone)
	}
	var row string
	err := db.Pool.QueryRow(t.Context(), `SELECT w::text FROM tidewire.watches AS w`).Scan(&row)
	if want := `(orders,feed,,"{insert,update,delete,truncate}",{d},f,1024,t)`; err != nil || row != want {
		t.Errorf("watches: %s, %v, want %s", row, err, want)
	}
}

// TestWatch_Partitioned: a partitioned table tells the changes of all its partitions, also those made directly and of partitions that are attached later; a
// partitioned stream gets the changes of a row in one partition, and a truncate in all.
func TestWatch_Partitioned(t *testing.T) {
	t.Parallel()
	db, s := watchedBy(t, stream.Options{Partitions: 2},
		`CREATE TABLE orders (id int, region int, PRIMARY KEY (id, region)) PARTITION BY LIST (region)`,
		`CREATE TABLE orders_1 PARTITION OF orders FOR VALUES IN (1)`,
		`SELECT tidewire.watch('orders', 'feed')`,
		`CREATE TABLE orders_2 PARTITION OF orders FOR VALUES IN (2)`,
		`INSERT INTO orders VALUES (1, 1), (2, 2)`,
		`INSERT INTO orders_1 VALUES (3, 1)`,
		`UPDATE orders SET region = 2 WHERE id = 1`,
		`TRUNCATE orders`)
	counts := make(map[string]int)
	for i := range 2 {
		for _, m := range everything(t, s.Partition(i)) {
			var c change
			if err := json.Unmarshal(m.Payload, &c); err != nil {
				t.Fatal(err)
			}
			counts[c.Op+" "+c.Table+" "+m.Key]++
			if m.Key != "" && s.PartitionOf(m.Key) != i {
				t.Errorf("key %s in partition %d", m.Key, i)
			}
		}
	}
	want := map[string]int{"insert orders [1, 1]": 1, "insert orders [2, 2]": 1, "insert orders [3, 1]": 1, "delete orders [1, 1]": 1, "insert orders [1, 2]": 1, "truncate orders ": 2}
	if fmt.Sprint(counts) != fmt.Sprint(want) {
		t.Errorf("%v, want %v", counts, want)
	}
	exec(t, db.Pool, `SELECT tidewire.unwatch('orders')`)
	exec(t, db.Pool, `INSERT INTO orders_2 VALUES (8, 2)`)
	if n := len(everything(t, s.Partition(0))) + len(everything(t, s.Partition(1))); n != 7 {
		t.Errorf("%d messages after unwatch, want 7", n)
	}
}

// TestWatch_NamesThatChange: tables and columns with unusual names, renamed, dropped, and a stream that is dropped.
func TestWatch_NamesThatChange(t *testing.T) {
	t.Parallel()
	db, s := watchedBy(t, stream.Options{}, `CREATE SCHEMA "a ""b"`, `CREATE TABLE "a ""b"."x'; "" %I" ("i "" d" int PRIMARY KEY, "val\ue" text)`,
		`SELECT tidewire.watch('"a ""b"."x''; "" %I"', 'feed')`, `INSERT INTO "a ""b"."x'; "" %I" VALUES (1, 'a\b')`,
		`ALTER TABLE "a ""b"."x'; "" %I" RENAME TO orders`, `ALTER TABLE "a ""b".orders RENAME "i "" d" TO id`,
		`UPDATE "a ""b".orders SET "val\ue" = NULL`)
	wantChanges(t, s, `1 insert {"i \" d": 1, "val\\ue": "a\\b"}`, `1 update {"id": 1, "val\\ue": "a\\b"} {"id": 1, "val\\ue": null}`)
	var first, second change
	for i, c := range []*change{&first, &second} {
		if err := json.Unmarshal(everything(t, s)[i].Payload, c); err != nil {
			t.Fatal(err)
		}
	}
	if first.Schema != `a "b` || first.Table != `x'; " %I` || second.Table != "orders" {
		t.Errorf("%+v, %+v", first, second)
	}
	if err := stream.Drop(t.Context(), db.Pool, "feed"); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Pool.Exec(t.Context(), `DELETE FROM "a ""b".orders`); pg.Code(err) != "TW003" {
		t.Errorf("without the stream: %v", err)
	}
	exec(t, db.Pool, `SELECT tidewire.unwatch('"a ""b".orders')`)
	exec(t, db.Pool, `DELETE FROM "a ""b".orders`)
	ensureOn(t, db.Pool, "again")
	exec(t, db.Pool, `SELECT tidewire.watch('"a ""b".orders', 'again')`)
	exec(t, db.Pool, `DROP TABLE "a ""b".orders`)
	if left := value[int](t, db.Pool, `SELECT count(*) FROM tidewire.watches`); left != 0 {
		t.Errorf("%d watches of a dropped table", left)
	}
}

func TestWatch_Invalid(t *testing.T) {
	t.Parallel()
	db, _ := watchedBy(t, stream.Options{}, `CREATE TABLE orders (id int)`, `CREATE VIEW v AS SELECT 1 AS a`, `CREATE TABLE feed (id int)`, `CREATE TABLE nowhere ()`)
	if _, err := stream.Ensure(t.Context(), db.Pool, "parts", stream.Options{Partitions: 2}); err != nil {
		t.Fatal(err)
	}
	for sql, want := range map[string]string{
		`SELECT tidewire.watch('nowhere')`:                                   "TW003",
		`SELECT tidewire.watch('v', 'feed')`:                                 "TW004",
		`SELECT tidewire.watch('tidewire.stream', 'feed')`:                   "TW004",
		`SELECT tidewire.watch('orders', 'tidewire.rooms')`:                  "TW004",
		`SELECT tidewire.watch('orders', 'feed', columns => '{x}')`:          "TW004",
		`SELECT tidewire.watch('orders', 'feed', key => '{ID}')`:             "TW004",
		`SELECT tidewire.watch('orders', 'feed', events => '{}')`:            "TW004",
		`SELECT tidewire.watch('orders', 'feed', events => '{insert,drop}')`: "TW004",
		`SELECT tidewire.watch('orders', 'feed', max_bytes => 0)`:            "TW004",
		`SELECT tidewire.watch('orders', 'feed', old_rows => NULL)`:          "TW004",
		`SELECT tidewire.watch('orders', 'parts')`:                           "TW004",
		`SELECT tidewire.watch(NULL, 'feed')`:                                "TW004",
	} {
		if _, err := db.Pool.Exec(t.Context(), sql); pg.Code(err) != want {
			t.Errorf("%s: %v, want %s", sql, err, want)
		}
	}
	exec(t, db.Pool, `SELECT tidewire.watch('feed')`) // a stream of its name
	exec(t, db.Pool, `CREATE TABLE texts (j json); SELECT tidewire.watch('texts', 'feed')`)
	if _, err := db.Pool.Exec(t.Context(), `INSERT INTO texts VALUES ('"\u0000"')`); pg.Code(err) != "22P05" {
		t.Errorf("a character that jsonb cannot hold: %v", err)
	}
}

// TestWatch_Rights: an owner of a table with five functions granted can watch it; a role that only writes to it needs no rights; and a type with a cast to
// json does not make its function run with the rights of Tidewire.
func TestWatch_Rights(t *testing.T) {
	t.Parallel()
	db, s := watchedBy(t, stream.Options{})
	name := dbName(t, db)
	named := strings.NewReplacer("watch_owner", name+"_owner", "watch_writer", name+"_writer").Replace // roles belong to the server
	exec(t, db.Pool, named(`CREATE ROLE watch_owner; CREATE ROLE watch_writer; CREATE SCHEMA watch_app AUTHORIZATION watch_owner; GRANT USAGE ON SCHEMA watch_app TO watch_writer`))
	defer exec(t, db.Pool, named(`DROP OWNED BY watch_owner, watch_writer CASCADE; DROP ROLE watch_owner, watch_writer`))
	as := func(role string, lines ...string) error {
		return pgx.BeginFunc(t.Context(), db.Pool, func(tx pgx.Tx) error {
			for _, line := range append([]string{`SET LOCAL ROLE ` + role}, lines...) {
				if _, err := tx.Exec(t.Context(), named(line)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(as("watch_owner", `CREATE TABLE watch_app.orders (id int PRIMARY KEY)`, `GRANT INSERT ON watch_app.orders TO watch_writer`))
	exec(t, db.Pool, named(`GRANT USAGE ON SCHEMA tidewire TO watch_owner`))
	if err := as("watch_owner", `SELECT tidewire.watch('watch_app.orders', 'feed')`); pg.Code(err) != "42501" {
		t.Errorf("without rights: %v", err)
	}
	exec(t, db.Pool, named(`GRANT EXECUTE ON FUNCTION tidewire.watch, tidewire.unwatch, tidewire.watched_partitions, tidewire.primary_key, tidewire.write_change TO watch_owner`))
	must(as("watch_owner", `SELECT tidewire.watch('watch_app.orders', 'feed')`))
	must(as("watch_writer", `INSERT INTO watch_app.orders VALUES (1)`))
	wantChanges(t, s, `1 insert {"id": 1}`)
	if err := as("watch_writer", `SELECT tidewire.unwatch('watch_app.orders')`); pg.Code(err) != "42501" {
		t.Errorf("a writer ends the watch: %v", err)
	}
	must(as("watch_owner", `CREATE TYPE watch_app.mood AS ENUM ('good')`, `CREATE TABLE watch_app.moods (m watch_app.mood)`,
		`SELECT tidewire.watch('watch_app.moods', 'feed')`, `INSERT INTO watch_app.moods VALUES ('good')`))
	wantChanges(t, s, `1 insert {"id": 1}`, ` insert {"m": "good"}`)
	must(as("watch_owner", `CREATE FUNCTION watch_app.mood_json(watch_app.mood) RETURNS json LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'ran as %', current_user; END $$`,
		`CREATE CAST (watch_app.mood AS json) WITH FUNCTION watch_app.mood_json(watch_app.mood)`))
	must(as("watch_owner", `INSERT INTO watch_app.moods VALUES ('good')`))
	wantChanges(t, s, `1 insert {"id": 1}`, ` insert {"m": "good"}`, ` insert {"m": "good"}`)
}

// TestWatch_CastOfAStranger: a type gets a cast to json, or the table a column of such a type, after the snapshot of a transaction. The cast's function does
// not run with the rights of Tidewire.
func TestWatch_CastOfAStranger(t *testing.T) {
	t.Parallel()
	const cast = `CREATE FUNCTION mood_json(mood) RETURNS json LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'ran as %', current_user; END $$;
		CREATE CAST (mood AS json) WITH FUNCTION mood_json(mood)`
	for name, c := range map[string]struct{ table, meanwhile, insert, code, want string }{
		"cast":   {`CREATE TABLE moods (m mood, all_of mood[])`, cast, `INSERT INTO moods VALUES ('good', '{good}')`, "", ` insert {"m": "good", "all_of": ["good"]}`},
		"column": {`CREATE TABLE moods (id int)`, cast + `; ALTER TABLE moods ADD COLUMN m mood`, `INSERT INTO moods VALUES (1, 'good')`, "40001", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, s := watchedBy(t, stream.Options{}, `CREATE TYPE mood AS ENUM ('good')`, c.table, `SELECT tidewire.watch('moods', 'feed')`)
			tx := begin(t, db.Pool, pgx.RepeatableRead)
			exec(t, tx, `SELECT 1`)
			exec(t, db.Pool, c.meanwhile)
			_, err := tx.Exec(t.Context(), c.insert)
			if pg.Code(err) != c.code {
				t.Fatalf("%v, want %q", err, c.code)
			}
			if c.want != "" {
				commitTx(t, tx)
				wantChanges(t, s, c.want)
			}
		})
	}
}

// TestWatch_Many: a COPY of many rows tells each, in the order of the rows.
func TestWatch_Many(t *testing.T) {
	t.Parallel()
	db, s := watchedBy(t, stream.Options{}, `CREATE TABLE orders (id int PRIMARY KEY)`, `SELECT tidewire.watch('orders', 'feed')`)
	const rows = 1000
	n, err := db.Pool.CopyFrom(t.Context(), pgx.Identifier{"orders"}, []string{"id"}, pgx.CopyFromSlice(rows, func(i int) ([]any, error) { return []any{i}, nil }))
	if err != nil || n != rows {
		t.Fatal(n, err)
	}
	all := everything(t, s)
	if len(all) != rows {
		t.Fatalf("%d messages, want %d", len(all), rows)
	}
	for i, m := range all {
		if m.Key != fmt.Sprint(i) || m.Position != all[0].Position+int64(i) {
			t.Fatalf("message %d has key %s at %d", i, m.Key, m.Position)
		}
	}
}
