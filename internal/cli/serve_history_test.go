package cli_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tidewire/tidewire/internal/cli"
	"github.com/tidewire/tidewire/internal/pgtest"
)

// TestServe_HistoryLost: clients that name positions that a failover has lost, or that never existed, are told so by
// every kind of request. The failover is simulated: nobody has received the named positions.
func TestServe_HistoryLost(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	p := serve(t, "--database-url", db.URL)
	w := wireDial(t, p.addr)
	if status, text := request(t, "POST", p.addr, "/v1/streams/s", ""); status != 200 {
		t.Fatalf("create: %d %s", status, text)
	}
	for range 3 {
		w.ask(`{"type":"publish","stream":"s","payload":"before","id":1}`)
		w.ask(`{"type":"append","events":[{"type":"A","tags":["t"]}],"id":1}`)
	}
	if _, err := db.Pool.Exec(t.Context(), `SELECT tidewire.begin_history()`); err != nil {
		t.Fatal(err)
	}
	fresh := w.ask(`{"type":"publish","stream":"s","payload":"after","id":1}`).Position
	lost := func(what, text string, last int64) {
		t.Helper()
		if !strings.Contains(text, `"code":"history_lost"`) || !strings.Contains(text, fmt.Sprintf(`"last":%d`, last)) {
			t.Errorf("%s: %s, want history_lost with %d", what, text, last)
		}
	}
	get := func(what, path string, last int64) {
		t.Helper()
		status, text := request(t, "GET", p.addr, path, "")
		if lost(what, text, last); status != 410 {
			t.Errorf("%s: status %d", what, status)
		}
	}
	get("messages", "/v1/streams/s/messages?after=5", 3)
	get("messages past the end", fmt.Sprintf("/v1/streams/s/messages?after=%d", fresh+1), fresh)
	get("events", "/v1/events?after=5", 3)
	status, text := request(t, "POST", p.addr, "/v1/events", `{"events":[{"type":"B"}],"condition":{"after":5,"query":{"items":[{"tags":["t"]}]}}}`)
	if lost("a condition", text, 3); status != 410 {
		t.Errorf("a condition: status %d", status)
	}
	say(w.Conn, `{"type":"subscribe","stream":"s","after":5,"credits":1000,"id":2}`)
	for {
		m, err := w.next()
		if err != nil {
			t.Fatal(err)
		}
		if m.Type == "error" {
			if m.Code != "history_lost" || m.Last != 3 {
				t.Errorf("a subscription: %+v", m)
			}
			break
		}
		if m.Type == "message" {
			t.Errorf("a subscription: %+v", m)
		}
	}
	s := shell{t, db.URL}
	if out := s.run("stream", "info", "s"); !strings.Contains(out, fmt.Sprintf("failover: no messages after position 3 and up to %d\n", fresh-1)) {
		t.Errorf("stream info:\n%s", out)
	}
	if _, errOut := s.in("", cli.ExitFailure, "stream", "tail", "s", "--after", "5"); !strings.Contains(errOut, "continue with --after 3") {
		t.Errorf("stream tail: %s", errOut)
	}
	if _, errOut := s.in("", cli.ExitFailure, "events", "query", "--after", "5"); !strings.Contains(errOut, "the last event before is at 3") {
		t.Errorf("events query: %s", errOut)
	}
}

// TestServe_Restored: serve logs that a restored dump begins a new history, and if it cannot see that; the dry run logs the second.
func TestServe_Restored(t *testing.T) {
	t.Parallel()
	const begun, unnoticed = "a new history of positions has begun", "GRANT EXECUTE ON FUNCTION pg_catalog.pg_control_system() TO "
	db := pgtest.Open(t)
	as, role := appRole(t, db)
	execSQL(t, db, "CREATE SCHEMA tidewire AUTHORIZATION "+role)
	start := func() string {
		t.Helper()
		p := serve(t, "--table", "tidewire.messages", "--database-url", as)
		if code := p.stop(t); code != cli.ExitOK {
			t.Errorf("exit code %d", code)
		}
		return p.log()
	}
	for range 2 {
		if log := start(); strings.Contains(log, begun) || strings.Contains(log, unnoticed) {
			t.Errorf("not restored: %s", log)
		}
	}
	execSQL(t, db, "UPDATE tidewire.history SET system = 1")
	if log := start(); strings.Count(log, begun) != 1 {
		t.Errorf("restored: %s", log)
	}
	execSQL(t, db, "REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC")
	if log := start(); !strings.Contains(log, unnoticed) {
		t.Errorf("no identifier: %s", log)
	}
	if code, _, text := run(t, nil, "db", "migrate", "--dry-run", "--table", "tidewire.messages", "--database-url", as); code != cli.ExitOK || !strings.Contains(text, unnoticed) {
		t.Errorf("exit code %d, %s", code, text)
	}
}
