package gateway_test

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/auth"
	"github.com/tidewire/tidewire/internal/gateway"
)

// TestAuth_LateBody: a request whose body comes after a change of the rules has the rights of the new ones.
func TestAuth_LateBody(t *testing.T) {
	t.Parallel()
	key, err := auth.NewSecret("", tokenSecret)
	if err != nil {
		t.Fatal(err)
	}
	cfg := func(stream string) auth.Config {
		r, err := auth.ParseRule("publish stream:" + stream)
		if err != nil {
			t.Fatal(err)
		}
		return auth.Config{Token: auth.TokenConfig{Audience: "tidewire"}, Keys: []auth.Key{key}, Rules: []auth.RoleRule{{Role: "user", Allow: []auth.Rule{r}}}}
	}
	policy, err := auth.NewPolicy(cfg("orders"))
	if err != nil {
		t.Fatal(err)
	}
	c := serveClosed(t, func(g *gateway.Config) { g.Auth.Policy = policy })
	const body = `{"payload":"x"}`
	// send sends a request, whose body follows when the server asks for it: it has looked at the rights before that.
	send := func(between func()) int {
		t.Helper()
		conn, err := net.Dial("tcp", c.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(patience))
		fmt.Fprintf(conn, "POST /v1/streams/orders/messages HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\nExpect: 100-continue\r\n\r\n",
			c.addr, tokenOf(t, "ann", time.Hour), len(body))
		in := bufio.NewReader(conn)
		if first, err := http.ReadResponse(in, nil); err != nil || first.StatusCode != http.StatusContinue {
			t.Fatal(first, err)
		}
		between()
		fmt.Fprint(conn, body)
		answer, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		return answer.StatusCode
	}
	if got := send(func() {}); got != http.StatusOK {
		t.Errorf("without a change: %d", got)
	}
	got := send(func() {
		if err := policy.Reload(cfg("others")); err != nil {
			t.Error(err)
		}
	})
	if got != http.StatusForbidden {
		t.Errorf("after a change: %d", got)
	}
}
