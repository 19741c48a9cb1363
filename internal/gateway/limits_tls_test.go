package gateway_test

import (
	"context"
	"crypto/tls"
	"net"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/tidewire/tidewire/internal/gateway"
	"github.com/tidewire/tidewire/internal/limits"
	"github.com/tidewire/tidewire/internal/testkit"
	"github.com/tidewire/tidewire/websocket"
)

// TestLimits_TLS: sockets count below TLS, from before the handshake until they are closed, whoever closes them.
func TestLimits_TLS(t *testing.T) {
	t.Parallel()
	registry := limits.New(limits.Config{AddressConnections: 3})
	server := gateway.New(gateway.Config{Only: gateway.Echo, Limits: registry})
	front := httptest.NewUnstartedServer(server)
	certificates := httptest.NewTLSServer(nil)
	certificates.Close()
	front.Listener = websocket.NewTLSListener(registry.Listener(front.Listener), &tls.Config{Certificates: certificates.TLS.Certificates})
	front.Config.ConnContext = limits.ConnContext
	front.Start()
	l := limited{closed: closed{t: t}, registry: registry}
	l.addr = front.Listener.Addr().String()
	idle, err := net.Dial("tcp", l.addr)
	if err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "a socket without a handshake counts", func() bool { return registry.Stats().Sockets == 1 })
	open := func() (socket, error) {
		return websocket.Dial(t.Context(), "wss://"+l.addr+"/ws", websocket.Config{TLS: &tls.Config{InsecureSkipVerify: true}})
	}
	var conns []socket
	for range 2 {
		c, err := open()
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, c)
	}
	if _, err := open(); err == nil || !strings.Contains(err.Error(), "429") {
		t.Errorf("one more got %v, want 429", err)
	}
	idle.Close()
	conns[0].Abort()
	go conns[1].Close(websocket.StatusNormal, "")
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	testkit.Eventually(t, "all are gone", func() bool { return registry.Stats().Sockets == 0 })
	if err := server.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	front.Close()
}
