package cli_test

import (
	"context"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/pgtest"
)

// TestServe_FirstUseWhilePostgreSQLIsAway: requests for a stream, a group, a queue
// and an event store that this server has not used yet wait for PostgreSQL, and
// each of them succeeds in the end.
func TestServe_FirstUseWhilePostgreSQLIsAway(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t)
	p := serve(t, "--database-url", server.URL())
	request(t, "POST", p.addr, "/v1/streams/s", "")
	request(t, "POST", p.addr, "/v1/streams/t", "")
	request(t, "POST", p.addr, "/v1/queues/q", "")
	asked := map[string]string{
		"publish": `{"type":"publish","stream":"s","payload":"x","id":1}`,
		"commit":  `{"type":"commit","stream":"t","group":"g","position":0,"id":1}`,
		"enqueue": `{"type":"enqueue","queue":"q","payload":"x","id":1}`,
		"append":  `{"type":"append","events":[{"type":"e"}],"id":1}`,
	}
	conns := make(map[string]*wire)
	for name := range asked {
		conns[name] = wireDial(t, p.addr)
	}
	if err := server.Kill(context.Background()); err != nil {
		t.Fatal(err)
	}
	for name, text := range asked {
		say(conns[name].Conn, "%s", text)
	}
	p.await(t, "PostgreSQL does not answer; what was accepted waits")
	time.Sleep(500 * time.Millisecond) // until all have sent requests: nothing shows that they wait
	if err := server.Restart(context.Background()); err != nil {
		t.Fatal(err)
	}
	for name, w := range conns {
		if m, err := w.next(); err != nil || m.Type != "ok" || m.ID != 1 {
			t.Errorf("%s: %+v, %v", name, m, err)
		}
	}
	p.await(t, "PostgreSQL answers again")
}
