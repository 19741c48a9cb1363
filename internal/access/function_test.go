package access_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/access"
	"github.com/tidewire/tidewire/migrate"
	"github.com/tidewire/tidewire/stream"
)

// prepare migrates the database of a server of a test.
func prepare(t *testing.T, url string) {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	if _, err = migrate.Up(t.Context(), pool); err == nil {
		_, err = stream.Ensure(t.Context(), pool, "orders", stream.Options{})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// disconnect records an act as another server does.
func disconnect(t *testing.T, url, user string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if _, err := conn.Exec(t.Context(), `SELECT tidewire.record_access_act('test', 'user_disconnected', $1, '{}')`, user); err != nil {
		t.Fatal(err)
	}
}

// mayTable is a function that looks rights up in a table, counts its calls in a sequence, fails for the name error, and sleeps for the name slow.
const mayTable = `
CREATE SCHEMA app;
CREATE TABLE app.rights (who text, verb text, kind text, name text);
CREATE SEQUENCE app.calls;
CREATE FUNCTION app.may(claims jsonb, verb text, kind text, name text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
	PERFORM nextval('app.calls');
	IF name = 'error' THEN
		RAISE 'wrong';
	ELSIF name = 'slow' THEN
		PERFORM pg_sleep(60);
	ELSIF name = 'null' THEN
		RETURN NULL;
	END IF;
	RETURN EXISTS (SELECT FROM app.rights AS r WHERE r.who = coalesce(claims->>'sub', claims->>'role') AND (r.verb, r.kind, r.name) = (may.verb, may.kind, may.name));
END
$$;
INSERT INTO app.rights VALUES ('ann', 'read', 'stream', 'orders'), ('ann', 'join', 'room', 'a'), ('ann', 'consume', 'queue', 'jobs'), ('ann', 'query', 'events', 'default'), ('key:shop', 'join', 'room', 'k')`

// TestFunction_LastWord: the function decides when no rule does, on both doors. An error is no right.
func TestFunction_LastWord(t *testing.T) {
	t.Parallel()
	db := migrated.Open(t)
	if _, err := db.Pool.Exec(t.Context(), mayTable); err != nil {
		t.Fatal(err)
	}
	n := startNode(t, db.URL, "app.may")
	ann := token(t, "ann", nil, "read stream:rule")
	w := n.connect(ann)
	for request, want := range map[string]string{
		`"type":"subscribe","stream":"orders"`: "ok", `"type":"join","room":"a"`: "ok", `"type":"query","query":{"items":[{"tags":["t"]}]}`: "ok",
		`"type":"subscribe","stream":"other"`: "forbidden", `"type":"join","room":"null"`: "forbidden", `"type":"join","room":"error"`: "unavailable",
		`"type":"join","room":"a\u0000"`: "forbidden", `"type":"subscribe","stream":"slow"`: "unavailable",
	} {
		if got := w.ask(request); got != want {
			t.Errorf("%s: %s, want %s", request, got, want)
		}
	}
	for path, want := range map[string]string{
		readOrders: "200", "/v1/streams/other": "403 forbidden", "/v1/streams/error": "503 unavailable", "/metrics": "403 forbidden", "/v1/streams/rule": "404 not_found",
	} {
		if got := n.http("GET", path, "", ann); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
	_, key := n.key("shop", 0, "read stream:orders")
	n.await("GET", readOrders, key, "200")
	if got := n.connect(key).ask(`"type":"join","room":"k"`); got != "ok" {
		t.Errorf("a key: %s", got)
	}
}

// TestFunction_IsAskedOnce: an answer counts for all requests with the token, and until a notification names the user.
func TestFunction_IsAskedOnce(t *testing.T) {
	t.Parallel()
	db := migrated.Open(t)
	if _, err := db.Pool.Exec(t.Context(), mayTable); err != nil {
		t.Fatal(err)
	}
	n := startNode(t, db.URL, "app.may")
	ann := token(t, "ann", nil)
	calls := func() (n int) {
		t.Helper()
		if err := db.Pool.QueryRow(t.Context(), `SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM app.calls`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	n.await("GET", readOrders, ann, "200")
	before := calls()
	for range 20 {
		if got := n.http("GET", readOrders, "", ann); got != "200" {
			t.Fatal(got)
		}
	}
	if asked := calls() - before; asked > 1 { // one, if the store has just begun to listen
		t.Errorf("asked %d times for one thing", asked)
	}
}

// TestFunction_Notify: a notification ends what the user may not have any more, on all servers, and nothing else. One that a server may have missed, because
// it did not listen, counts as one for all users.
func TestFunction_Notify(t *testing.T) {
	t.Parallel()
	db := migrated.Open(t)
	if _, err := db.Pool.Exec(t.Context(), mayTable); err != nil {
		t.Fatal(err)
	}
	nodes := []node{startNode(t, db.URL, "app.may"), startNode(t, db.URL, "app.may")}
	ann := token(t, "ann", nil, "join room:rule")
	var wires []*wire
	for _, n := range nodes {
		w := n.connect(ann)
		for _, request := range []string{`"type":"subscribe","stream":"orders","subscription":"s"`, `"type":"join","room":"a"`, `"type":"join","room":"rule"`, `"type":"subscribe","query":{},"subscription":"e"`} {
			if got := w.ask(request); got != "ok" {
				t.Errorf("%s: %s", request, got)
			}
		}
		wires = append(wires, w)
	}
	if _, err := db.Pool.Exec(t.Context(), `DELETE FROM app.rights WHERE kind <> 'events'; NOTIFY tidewire_access, '{"user":"ann"}'`); err != nil {
		t.Fatal(err)
	}
	for i, w := range wires {
		ended := map[string]bool{}
		for range 2 {
			answer := w.next()
			if codeOf(answer) != "forbidden" {
				t.Errorf("server %d: %s", i, answer)
			}
			ended[map[bool]string{true: "room a", false: "orders"}[strings.Contains(answer, `"room":"a"`)]] = true
		}
		if len(ended) != 2 {
			t.Errorf("server %d: ended %v", i, ended)
		}
		if got := w.ask(`"type":"subscribe","stream":"orders"`); got != "forbidden" {
			t.Errorf("server %d: %s", i, got)
		}
		if got := w.ask(`"type":"unsubscribe","subscription":"e"`); got != "ok" { // was not ended
			t.Errorf("server %d: %s", i, got)
		}
		if got := w.ask(`"type":"subscribe","query":{},"subscription":"e2"`); got != "ok" {
			t.Errorf("server %d: %s", i, got)
		}
	}
	for _, statement := range []string{`DELETE FROM app.rights`, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND query ILIKE 'LISTEN %'`} {
		if _, err := db.Pool.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	for i, w := range wires {
		if answer := w.next(); codeOf(answer) != "forbidden" {
			t.Errorf("server %d: %s", i, answer)
		}
	}
}

// TestFunction_Open: the function must be there, with its signature, and the role must be able to call it.
func TestFunction_Open(t *testing.T) {
	t.Parallel()
	db := migrated.Open(t)
	if _, err := db.Pool.Exec(t.Context(), mayTable+`;
		CREATE FUNCTION app.text(claims jsonb, verb text, kind text, name text) RETURNS text LANGUAGE sql AS $$ SELECT 'x' $$`); err != nil {
		t.Fatal(err)
	}
	for name, says := range map[string]string{
		"app.may": "", "app.other": "CREATE FUNCTION app.other(claims jsonb", "app.text": "CREATE FUNCTION", "nowhere.may": "CREATE FUNCTION", "may": "SCHEMA.NAME",
		"app.may(); DROP TABLE x": "SCHEMA.NAME", `app."x"`: "SCHEMA.NAME",
	} {
		err := new(access.Function).Open(t.Context(), db.Pool, slog.New(slog.DiscardHandler), name)
		if (err == nil) != (says == "") || err != nil && !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestFunction_ClaimsThatAreNoJSONB: a token with claims that PostgreSQL does not take is invalid, and not a reason to try again. What is accepted can be asked about.
func TestFunction_ClaimsThatAreNoJSONB(t *testing.T) {
	t.Parallel()
	db := migrated.Open(t)
	if _, err := db.Pool.Exec(t.Context(), mayTable); err != nil {
		t.Fatal(err)
	}
	n := startNode(t, db.URL, "app.may")
	raw := func(text string) json.RawMessage { return json.RawMessage(text) }
	for name, c := range map[string]struct {
		claim any
		want  string
	}{
		"NUL": {"a\x00b", "401 invalid_token"}, "a large number": {raw(`1e200000`), "401 invalid_token"}, "a small number": {raw(`1e-20000`), "401 invalid_token"},
		"depth":            {raw(strings.Repeat("[", 2000) + strings.Repeat("]", 2000)), "401 invalid_token"},
		"half a character": {raw(`"\ud800"`), "200"}, "the largest number": {raw(`-1e1000`), "200"}, "the smallest number": {raw(strings.Repeat("9", 2000) + `e-1000`), "200"},
		"the deepest": {raw(strings.Repeat("[", 63) + strings.Repeat("]", 63)), "200"}, "HTML": {"<&>\u2028", "200"},
	} {
		if got := n.http("GET", readOrders, "", token(t, "ann", map[string]any{"c": c.claim})); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}
