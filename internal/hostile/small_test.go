package hostile

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/tidewire/tidewire/internal/pgtest"
)

// TestHostile_SmallServer: a server with the minimum memory serves many clients with small messages, and rejects or closes none of them.
func TestHostile_SmallServer(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a server")
	}
	const clients, requests = 50, 40
	s := startServer(t, "", pgtest.Open(t).URL, nil, "--max-memory", "64MiB")
	producing, enough := context.WithCancel(t.Context())
	defer enough()
	w := newWorld(t, producing, t.Context(), nil)
	w.begin(s.Addr)
	defer w.report()
	if !w.request("preparer", "POST", "/v1/streams/small", "{}", new(any)) {
		t.Fatal("cannot make the stream")
	}
	var answers atomic.Int64
	side(clients, func(i int) {
		w.produce(work{who: fmt.Sprint("small client ", i), path: "/ws",
			ask: func(l *line, n int) {
				l.ask(n, `{"type":"publish","stream":"small","payload":"%064d","id":%d}`, n, n)
			},
			done: func(int, message) {
				if answers.Add(1) == clients*requests {
					enough()
				}
			}})
	})
	if err := s.stop(false); err != nil {
		t.Error(err)
	}
}
