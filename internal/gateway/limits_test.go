package gateway_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/auth"
	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/gateway"
	"github.com/tidewire/tidewire/internal/limits"
	"github.com/tidewire/tidewire/internal/testkit"
	"github.com/tidewire/tidewire/websocket"
)

// limited is a server whose sockets are counted.
type limited struct {
	closed
	registry *limits.Registry
}

// serveLimited serves in closed mode, in which everybody may do much, or in open mode.
func serveLimited(t *testing.T, cfg limits.Config, open bool, change func(*gateway.Config)) limited {
	t.Helper()
	l := limited{registry: limits.New(cfg), closed: closed{t: t, streams: newFakeStreams(t, "orders"), queues: newFakeQueues(t, "jobs")}}
	gw := gateway.Config{
		Engine: engine.Engine{Ingest: (&memory{}).source, Streams: l.streams, Queues: l.queues, Events: newFakeEvents()},
		Auth:   gateway.AuthConfig{Timeout: time.Hour}, Limits: l.registry, Chat: gateway.ChatConfig{PingInterval: time.Hour, PongTimeout: time.Hour},
	}
	if !open {
		gw.Auth.Policy = policyOf(t, auth.Config{Anonymous: cfg.Pending == 0, Rules: []auth.RoleRule{{
			Role: auth.AnyRole, Allow: rulesFor(t, "publish,read stream:*", "write ingest:*", "join,chat room:**", "consume queue:*", "bench server:*"),
		}}})
	}
	if change != nil {
		change(&gw)
	}
	t.Cleanup(func() {
		testkit.Eventually(t, "nothing is counted", func() bool {
			s := l.registry.Stats()
			return s.Sockets+s.Pending+s.Requests+s.Addresses == 0
		})
	})
	l.server = gateway.New(gw)
	l.addr = expose(t, l.server, l.registry)
	return l
}

// dial connects with headers, and returns the connection or the status of the refusal, and the answer's headers and body.
func (l *limited) dial(path string, header http.Header) (*wire, int, string) {
	l.t.Helper()
	conn, err := dialSocket(l.t.Context(), "ws://"+l.addr+path, websocket.Config{Header: header})
	if refused, ok := errors.AsType[*websocket.HandshakeError](err); ok {
		return nil, refused.Status, refused.Reason
	}
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(conn.Abort)
	return &wire{socket: conn, t: l.t}, 0, ""
}

// TestLimits_User: the connections of one user count together, whichever token they have, on every endpoint, in the handshake and by a message.
func TestLimits_User(t *testing.T) {
	t.Parallel()
	l := serveLimited(t, limits.Config{UserConnections: 3, Pending: 100}, false, nil)
	one, two := tokenOf(t, "ann", time.Hour), tokenOf(t, "ann", 2*time.Hour)
	first, _, _ := l.dial("/ws", bearer(one))
	l.dial("/ws/ingest", bearer(two))
	third, _, _ := l.dial("/ws/chat", nil)
	if got := third.code(fmt.Sprintf(`{"type":"auth","id":"x","token":%q}`, one)); got != "ok" {
		t.Fatal(got)
	}
	resp, body := client{t, l.addr}.fetch("GET", "/ws", "", "Authorization", "Bearer "+two, "Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Version", "13", "Sec-WebSocket-Key", "AAAAAAAAAAAAAAAAAAAAAA==")
	if resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get("Retry-After") == "" || !strings.Contains(body, `"code":"too_many_connections"`) ||
		!strings.Contains(body, `"retry_after_ms":`) || !resp.Close {
		t.Errorf("a fourth connection got %d %v %s", resp.StatusCode, resp.Header, body)
	}
	for _, path := range []string{"/ws", "/ws/chat"} {
		fourth, _, _ := l.dial(path, nil)
		if got := fourth.code(fmt.Sprintf(`{"type":"auth","id":"x","token":%q}`, two)); got != "too_many_connections" {
			t.Errorf("%s: auth of a fourth connection got %s", path, got)
		}
		if got := closeOf(t, fourth); got != 4429 {
			t.Errorf("%s: closed with %d, want 4429", path, got)
		}
	}
	if w, status, _ := l.dial("/ws", bearer(tokenOf(t, "bob", time.Hour))); w == nil {
		t.Errorf("another user got %d", status)
	}
	if got := first.code(fmt.Sprintf(`{"type":"auth","id":"x","token":%q}`, two)); got != "ok" { // it has its place already
		t.Errorf("a renewal got %s", got)
	}
	first.Close(websocket.StatusNormal, "")
	testkit.Eventually(t, "there is room again", func() bool {
		w, _, _ := l.dial("/ws", bearer(one))
		return w != nil
	})
}

// once does a request on a connection of its own.
func (l *limited) once(method, path, token string, more ...string) string {
	l.t.Helper()
	r, err := http.NewRequestWithContext(l.t.Context(), method, "http://"+l.addr+path, nil)
	if err != nil {
		l.t.Fatal(err)
	}
	r.Header, r.Close = bearer(token, more...), true
	resp, err := httpOf(l.addr).Do(r)
	if err != nil {
		l.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	_, code, _ := strings.Cut(string(body), `"code":"`)
	code, _, found := strings.Cut(code, `"`)
	if !found {
		code = ""
	}
	return strings.TrimSpace(fmt.Sprint(resp.StatusCode, " ", code))
}

// TestLimits_Forwarded: clients after a trusted proxy count by the address that it reports, and nobody else can report one.
func TestLimits_Forwarded(t *testing.T) {
	t.Parallel()
	cfg := limits.Config{AddressConnections: 2}
	l := serveLimited(t, cfg, true, nil)
	for i := range 2 {
		l.dial("/ws", bearer("", "X-Forwarded-For", fmt.Sprint("198.51.100.", i)))
	}
	if w, _, _ := l.dial("/ws", bearer("", "X-Forwarded-For", "198.51.100.9")); w != nil {
		t.Error("a client evades its limit by a header")
	}
	cfg.Proxies = limits.Proxies{netip.MustParsePrefix("127.0.0.0/8")}
	l = serveLimited(t, cfg, true, nil)
	for i := range 4 {
		if w, status, _ := l.dial("/ws", bearer("", "X-Forwarded-For", fmt.Sprint("6.6.6.6, 198.51.100.", i))); w == nil {
			t.Errorf("client %d got %d", i, status)
		}
	}
	for i := range 3 {
		w, _, _ := l.dial("/ws", bearer("", "X-Forwarded-For", fmt.Sprintf("6.6.6.%d, 2001:db8:0:1::%d", i, i)))
		if (w != nil) != (i < 2) {
			t.Errorf("connection %d of one /64: accepted is %v", i, w != nil)
		}
	}
	if got := l.once("GET", "/v1/streams", "", "X-Forwarded-For", "2001:db8:0:1::9"); got != "200" { // sockets of proxies do not count
		t.Errorf("HTTP got %s", got)
	}
}
