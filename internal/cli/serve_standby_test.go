package cli_test

import (
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/cli"
	"github.com/tidewire/tidewire/internal/pgtest"
)

// TestServe_ReadURL: pages and queries are read from the standby of --read-url, and from the primary if the standby is
// gone, as the metrics and /readyz show.
func TestServe_ReadURL(t *testing.T) {
	t.Parallel()
	pair := pgtest.StartPair(t, pgxpool.New)
	p := serve(t, "--database-url", pair.Primary.URL(), "--read-url", pair.Standby.URL())
	w := wireDial(t, p.addr)
	if status, text := request(t, "POST", p.addr, "/v1/streams/s", ""); status != 200 {
		t.Fatalf("create: %d %s", status, text)
	}
	for i := range 50 {
		w.ask(`{"type":"publish","stream":"s","payload":"m%d","id":1}`, i)
		w.ask(`{"type":"append","events":[{"type":"A","tags":["t"]}],"id":1}`)
	}
	pair.CatchUp(t)
	get := func(path string) string {
		t.Helper()
		status, text := request(t, "GET", p.addr, path, "")
		if status != 200 {
			t.Fatalf("%s: %d %s", path, status, text)
		}
		return text
	}
	read := func() {
		t.Helper()
		if text := get("/v1/streams/s/messages?after=10&limit=20"); !strings.Contains(text, `"m10"`) || !strings.Contains(text, `"m29"`) || strings.Contains(text, `"m30"`) {
			t.Errorf("messages: %s", text)
		}
		if text := get("/v1/events?after=10"); strings.Count(text, `"type":"A"`) != 40 {
			t.Errorf("events: %s", text)
		}
	}
	read()
	if text := get("/metrics"); !strings.Contains(text, `tidewire_reads_total{server="standby"} 2`) || !strings.Contains(text, "tidewire_standby_used 1") {
		t.Errorf("metrics: %s", text)
	}
	if text := get("/readyz"); text != "ok" {
		t.Errorf("readyz: %s", text)
	}
	pair.Unsynchronised(t)
	if err := pair.Standby.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	read()
	if text := get("/readyz"); text != "ok\nthe standby is not read: it cannot be reached" {
		t.Errorf("readyz without the standby: %s", text)
	}
	if text := get("/metrics"); !strings.Contains(text, "tidewire_standby_used 0") {
		t.Errorf("metrics without the standby: %s", text)
	}
	if err := pair.Standby.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); get("/readyz") != "ok"; read() {
		if time.Now().After(deadline) {
			t.Fatalf("the standby is back, and not read: %s", get("/readyz"))
		}
	}
	for _, line := range []string{"reads go to the standby", "the standby is not read for now", `reason="it cannot be reached"`} {
		if !strings.Contains(p.log(), line) {
			t.Errorf("the log lacks %q", line)
		}
	}
	if code, _, errOut := run(t, nil, "serve", "--database-url", pair.Primary.URL(), "--read-url", "postgres://%zz"); code != cli.ExitUsage || !strings.Contains(errOut, "--read-url") {
		t.Errorf("a malformed URL: exit code %d: %s", code, errOut)
	}
}
