package cli_test

import (
	"context"
	"errors"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/auth/authtest"
	"github.com/tidewire/tidewire/internal/testkit"
	"github.com/tidewire/tidewire/websocket"
)

// TestServe_Reload: rules and keys are read again when their files have changed, also for connections that are open. While a file cannot be
// used, the former rules stay.
func TestServe_Reload(t *testing.T) {
	notShort(t)
	t.Parallel()
	secret := secretFile(t, serverSecret)
	const rules = `auth-secret-file = [%s]
rule = [%r]
`
	text := func(rule string) string {
		return strings.NewReplacer("%s", `"`+secret+`"`, "%r", rule).Replace(rules)
	}
	file := configFile(t, text(`"user: join room:a"`))
	p := serve(t, "--only", "chat", "--config", file, "--ping-interval", "1h", "--pong-timeout", "1h")
	write := func(path, text, says string) {
		t.Helper()
		seen := strings.Count(p.Log(), says)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		testkit.Eventually(t, "the log says "+says, func() bool { return strings.Count(p.Log(), says) > seen })
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	connect := func(secret []byte) (*websocket.Conn, error) {
		token := authtest.Token(t, secret, "ann", time.Hour, nil)
		return websocket.Dial(ctx, "ws://"+p.Addr+"/ws", websocket.Config{Header: http.Header{"Authorization": {"Bearer " + token}}})
	}
	conn, err := connect(serverSecret)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Abort()
	ann := &chatReader{t: t, conn: conn}
	ask := func(request, want string) {
		t.Helper()
		say(conn, "%s", request)
		if got := ann.next(); !strings.Contains(got, want) {
			t.Errorf("%s: %s, want %s", request, got, want)
		}
	}
	ask(`{"id":1,"type":"join","room":"a"}`, `"ok"`)
	ask(`{"id":2,"type":"join","room":"b"}`, `"forbidden"`)

	const kept = "the former ones stay"
	write(file, text(`"user: jion room:a"`), kept)
	write(file, "", kept) // no key: a running server does not become open
	ask(`{"id":3,"type":"join","room":"a"}`, `"ok"`)

	other := []byte("another secret of at least 32 bytes, for tests")
	if err := os.WriteFile(file, []byte(text(`"user: join room:b"`)), 0o600); err != nil {
		t.Fatal(err)
	}
	write(secret, string(other), "the keys and rules were read again")
	if got := ann.next(); !strings.Contains(got, `"forbidden"`) || !strings.Contains(got, `"room":"a"`) {
		t.Errorf("after the change: %s, want the end of room a", got)
	}
	ask(`{"id":4,"type":"join","room":"b"}`, `"ok"`)
	var refused *websocket.HandshakeError
	if _, err := connect(serverSecret); !errors.As(err, &refused) || refused.Status != http.StatusUnauthorized {
		t.Errorf("a token of the former secret: %v", err)
	}
	if c, err := connect(other); err != nil {
		t.Error(err)
	} else {
		c.Abort()
	}
}
