package natsrelay_test

import (
	"crypto/tls"
	"log/slog"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/tidewire/tidewire/internal/relay/natsrelay"
	"github.com/tidewire/tidewire/internal/relay/natstest"
)

// TestTLS_NATS: nodes use NATS servers with TLS if they trust them, with a certificate if these want one, and say what to do if not.
func TestTLS_NATS(t *testing.T) {
	t.Parallel()
	pair, files := issued(t, "127.0.0.1")
	_, foreign := issued(t, "127.0.0.1")
	encrypted := natstest.Start(t, &server.Options{TLS: true, TLSTimeout: 10, TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}}})
	strict := natstest.Start(t, &server.Options{TLS: true, TLSVerify: true, TLSTimeout: 10, TLSConfig: &tls.Config{
		Certificates: []tls.Certificate{pair}, ClientCAs: files.Roots, ClientAuth: tls.RequireAndVerifyClientCert}})
	plain := natstest.Start(t, &server.Options{})
	at := func(s *server.Server) string { return "tls://" + s.Addr().String() }
	for name, c := range map[string]struct {
		cfg  natsrelay.Config
		says string // empty if it works
	}{
		"its CA":                      {natsrelay.Config{URL: at(encrypted), CAFile: files.CertFile}, ""},
		"its CA, nats://":             {natsrelay.Config{URL: "nats://" + encrypted.Addr().String(), CAFile: files.CertFile}, ""},
		"a certificate":               {natsrelay.Config{URL: at(strict), CAFile: files.CertFile, CertFile: files.CertFile, KeyFile: files.KeyFile}, ""},
		"no certificate":              {natsrelay.Config{URL: at(strict), CAFile: files.CertFile}, "--nats-cert-file"},
		"the CAs of the system":       {natsrelay.Config{URL: at(encrypted)}, "--nats-ca-file"},
		"another CA":                  {natsrelay.Config{URL: at(encrypted), CAFile: foreign.CertFile}, "--nats-ca-file"},
		"a server without TLS":        {natsrelay.Config{URL: at(plain)}, "have no TLS"},
		"a CA, a server without TLS":  {natsrelay.Config{URL: "nats://" + plain.Addr().String(), CAFile: files.CertFile}, "have no TLS"},
		"a CA file that is not there": {natsrelay.Config{URL: at(encrypted), CAFile: "/nowhere"}, "/nowhere"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if c.says == "" {
				c.cfg.Node = "a"
				a, _ := begin(t, c.cfg)
				c.cfg.Node = "b"
				b, _ := begin(t, c.cfg)
				deliver(t, a, b, "by TLS")
				return
			}
			c.cfg.Node, c.cfg.Cluster, c.cfg.Log = "a", "c", slog.New(slog.DiscardHandler)
			r, err := natsrelay.Start(c.cfg)
			if err == nil {
				r.Close()
			}
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v, want %q", err, c.says)
			}
		})
	}
}
