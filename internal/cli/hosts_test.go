package cli_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/pgtest"
)

// TestServe_Standby: a server reads pages and queries from the standby of --read-url, and from the primary while the standby is gone. A publish that
// comes while the primary is frozen is answered after the standby was promoted. The former primary gets nothing when it comes back, and /readyz says so
// when it is alone.
func TestServe_Standby(t *testing.T) {
	notShort(t)
	t.Parallel()
	pair := pgtest.StartPair(t, pgxpool.New)
	p := serve(t, "--database-url", pair.Both(t), "--read-url", pair.Standby.URL())
	w := wireDial(t, p.Addr)
	asked{"POST /v1/streams/s", "", 200, ""}.of(t, p.Addr)
	for i := range 30 {
		w.ask(`{"type":"publish","stream":"s","payload":"m%d","id":1}`, i)
		w.ask(`{"type":"append","events":[{"type":"A","tags":["t"]}],"id":1}`)
	}
	pair.CatchUp(t)
	read := func(from string, used int) {
		t.Helper()
		before := asked{"GET /metrics", "", 200, fmt.Sprintf("\ntidewire_standby_used %d\n", used)}.of(t, p.Addr)
		asked{"GET /v1/streams/s/messages?after=10&limit=1", "", 200, `"m10"`}.of(t, p.Addr)
		if text := (asked{"GET /v1/events?after=10", "", 200, ""}).of(t, p.Addr); strings.Count(text, `"type":"A"`) != 20 {
			t.Errorf("events: %s", text)
		}
		after := asked{"GET /metrics", "", 200, ""}.of(t, p.Addr)
		counter := fmt.Sprintf(`tidewire_reads_total{server=%q} `, from)
		_, before, _ = strings.Cut(before, counter)
		_, after, _ = strings.Cut(after, counter)
		var was, is int
		fmt.Sscan(before, &was)
		if fmt.Sscan(after, &is); is != was+2 {
			t.Errorf("%d reads from the %s, and before %d", is, from, was)
		}
	}
	read("standby", 1)
	pair.Unsynchronised(t)
	if err := pair.Standby.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	asked{"GET /v1/events?after=10", "", 200, `"type":"A"`}.of(t, p.Addr)
	p.awaitReadyz(t, 200, "ok\nthe standby is not read: it cannot be reached")
	read("primary", 0)
	if err := pair.Standby.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.awaitMetric(t, "tidewire_standby_used 1")
	for _, line := range []string{"reads go to the standby", "the standby is not read for now", `reason="it cannot be reached"`} {
		p.Await(t, line)
	}

	pair.CatchUp(t)
	thaw := pgtest.FreezeServer(t, pair.Primary)
	say(w.Conn, `{"type":"publish","stream":"s","payload":"frozen","id":2}`)
	p.Await(t, "PostgreSQL server does not answer")
	runSQL(t, pair.Standby.URL(), `SELECT pg_promote()`)
	if m, err := w.next(); err != nil || m.Type != "ok" || m.ID != 2 {
		t.Fatalf("%+v, %v", m, err)
	}
	thaw()
	p.Await(t, "PostgreSQL server is refused")
	p.awaitReadyz(t, 200, "ok")
	w.ask(`{"type":"publish","stream":"s","payload":"third","id":3}`)
	if err := pair.Standby.Kill(context.Background()); err != nil {
		t.Fatal(err)
	}
	p.awaitReadyz(t, 503, "only a former primary of PostgreSQL can be reached")
	p.awaitMetric(t, "tidewire_postgres_refused_hosts 1")
	if err := pair.Standby.Restart(context.Background()); err != nil {
		t.Fatal(err)
	}
	p.awaitReadyz(t, 200, "ok")
	w.ask(`{"type":"publish","stream":"s","payload":"fourth","id":4}`)
}
