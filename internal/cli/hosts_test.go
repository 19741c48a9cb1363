package cli_test

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/pgtest"
)

// TestServe_FrozenPrimary: a publish that comes while the primary is frozen is answered after the standby was
// promoted. The former primary gets nothing when it comes back, and /readyz says so when it is alone.
func TestServe_FrozenPrimary(t *testing.T) {
	t.Parallel()
	pair := pgtest.StartPair(t, pgxpool.New)
	pair.Unsynchronised(t)
	p := serve(t, "--database-url", pair.Both(t))
	request(t, "POST", p.addr, "/v1/streams/s", "")
	w := wireDial(t, p.addr)
	w.ask(`{"type":"publish","stream":"s","payload":"first","id":1}`)
	pair.CatchUp(t)
	thaw := pgtest.FreezeServer(t, pair.Primary)
	say(w.Conn, `{"type":"publish","stream":"s","payload":"second","id":2}`)
	p.await(t, "PostgreSQL server does not answer")
	runSQL(t, pair.Standby.URL(), `SELECT pg_promote()`)
	if m, err := w.next(); err != nil || m.Type != "ok" || m.ID != 2 {
		t.Fatalf("%+v, %v", m, err)
	}
	thaw()
	p.await(t, "PostgreSQL server is refused")
	awaitReadyz(t, p, 200, "ok")
	w.ask(`{"type":"publish","stream":"s","payload":"third","id":3}`)
	if err := pair.Standby.Kill(context.Background()); err != nil {
		t.Fatal(err)
	}
	awaitReadyz(t, p, 503, "only a former primary of PostgreSQL can be reached")
	if _, text := request(t, "GET", p.addr, "/metrics", ""); !strings.Contains(text, "\ntidewire_postgres_refused_hosts 1\n") {
		t.Error("/metrics does not count the refused host")
	}
	if err := pair.Standby.Restart(context.Background()); err != nil {
		t.Fatal(err)
	}
	awaitReadyz(t, p, 200, "ok")
	w.ask(`{"type":"publish","stream":"s","payload":"fourth","id":4}`)
}
