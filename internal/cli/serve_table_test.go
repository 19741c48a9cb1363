package cli_test

import (
	"strings"
	"testing"

	"github.com/tidewire/tidewire/internal/bench"
	"github.com/tidewire/tidewire/internal/cli"
	"github.com/tidewire/tidewire/internal/pgtest"
)

// TestServe_Table: an application may have its own table messages; then
// ingested messages go to another table.
func TestServe_Table(t *testing.T) {
	t.Parallel()
	db := pgtest.Open(t)
	execSQL(t, db, `CREATE TABLE public.messages (mine text)`)
	for _, args := range [][]string{{"serve", "--port", "0"}, {"db", "migrate", "--table", "messages"}, {"db", "migrate", "--table", "messages", "--dry-run"}} {
		code, _, text := run(t, nil, append(args, "--database-url", db.URL)...)
		if code != cli.ExitDatabase || !strings.Contains(text, "--table") || schemaVersion(t, db) != -1 {
			t.Errorf("%v: exit code %d, %q, and a schema of version %d, want none", args, code, text, schemaVersion(t, db))
		}
	}
	if code, _, text := run(t, nil, "db", "migrate", "--database-url", db.URL); code != cli.ExitOK {
		t.Fatalf("exit code %d, %q", code, text)
	}
	refused(t, []refusal{{"serve --port 0 --migrate=false --table tidewire.inbox --database-url " + db.URL, cli.ExitDatabase, "tidewire db migrate --table tidewire.inbox"}})
	p := serve(t, "--table", "tidewire.inbox", "--max-memory", "256MiB", "--database-url", db.URL)
	seen := pump(t, bench.PumpConfig{URL: "ws://" + p.Addr + "/ws/ingest?ack=1", Clients: 1, Messages: 10, Answer: bench.CountAnswer})
	if n := rows(t, db.URL, `SELECT count(*) FROM tidewire.inbox`); n != 10 || seen.Answered != 10 {
		t.Errorf("%d rows, %d answered, want 10", n, seen.Answered)
	}
	p.Await(t, "max_bytes=268435456")
	if code := p.Stop(t); code != cli.ExitOK {
		t.Errorf("exit code %d", code)
	}
	if n := rows(t, db.URL, `SELECT count(*) FROM information_schema.columns WHERE table_schema = 'public' AND table_name = 'messages'`); n != 1 {
		t.Errorf("the application's table has %d columns", n)
	}
}
