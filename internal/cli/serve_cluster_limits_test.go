package cli_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/auth/authtest"
	"github.com/tidewire/tidewire/websocket"
)

// TestCluster_ConnectionsOfAUser: a user has its limit of connections on all servers together.
func TestCluster_ConnectionsOfAUser(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	flags := []string{
		"--database-url", db.URL, "--cluster", "tides", "--cluster-listen", "127.0.0.1:0", "--only", "chat",
		"--auth-secret-file", secretFile(t, serverSecret), "--rule", "user: join room:*", "--max-user-connections", "4",
	}
	one, other := serve(t, flags...), serve(t, flags...)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	header := http.Header{"Authorization": {"Bearer " + authtest.Token(t, serverSecret, "ann", time.Hour, nil)}}
	connect := func(p *program) (*websocket.Conn, error) {
		return websocket.Dial(ctx, "ws://"+p.addr+"/ws", websocket.Config{Header: header})
	}
	for range 3 {
		c, err := connect(one)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Abort)
	}
	// The other server hears of these within some time. Then there is one connection left.
	for {
		first, err := connect(other)
		if ctx.Err() != nil {
			t.Fatal("the connections at one server do not count at the other one")
		}
		if err != nil {
			continue // one of the last round still counts
		}
		second, err := connect(other)
		first.Abort()
		if err != nil {
			return
		}
		second.Abort()
		time.Sleep(50 * time.Millisecond)
	}
}
