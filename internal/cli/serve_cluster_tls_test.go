package cli_test

import (
	"crypto/tls"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/tidewire/tidewire/internal/cli"
	"github.com/tidewire/tidewire/internal/relay/natstest"
)

// startTLSNATS returns the address of a NATS server that wants TLS, and has the certificate in these files.
func startTLSNATS(t *testing.T, certFile, keyFile string) string {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		t.Fatal(err)
	}
	s := natstest.Start(t, &server.Options{TLS: true, TLSTimeout: 10, TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}}})
	return "tls://" + s.Addr().String()
}

// TestCluster_TLS: a room spans two servers that use certificates of an operator, or NATS servers with TLS, by the CAs of the system and by a file.
func TestCluster_TLS(t *testing.T) {
	t.Parallel()
	made := madeCert(t, time.Hour)
	secret := longSecret(t)
	ways := map[string]struct {
		environment string
		flags       []string
	}{
		"own certificates":        {"SSL_CERT_FILE=", strings.Fields("--cluster-listen 127.0.0.1:0 --cluster-secret-file " + secret + own(made.CertFile, made.KeyFile, made.CertFile))},
		"NATS, CAs of the system": {"SSL_CERT_FILE=" + made.CertFile, nil},
		"NATS, CA file":           {"SSL_CERT_FILE=", []string{"--nats-ca-file", made.CertFile}},
	}
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := []string{"SSL_CERT_DIR=/nowhere", way.environment, tidewire(t), "serve", "--port", "0", "--only", "chat", "--cluster", "tides", "--rate-limit", "1e6", "--rate-burst", "1e6"}
			if strings.HasPrefix(name, "NATS") {
				args = append(args, "--nats", startTLSNATS(t, made.CertFile, made.KeyFile))
			}
			args = append(args, way.flags...)
			first := start(t, exec.Command("env", args...))
			if !strings.HasPrefix(name, "NATS") {
				args = append(args, "--cluster-peers", first.clusterAddress(t))
			}
			second := start(t, exec.Command("env", args...))
			converse(t, enter(t, first.addr, "first"), enter(t, second.addr, "second"))
		})
	}
}

// TestCluster_WrongSecret: servers with different secrets refuse each other, and write what to do.
func TestCluster_WrongSecret(t *testing.T) {
	t.Parallel()
	begin := func(secret string, flags ...string) *program {
		file := filepath.Join(t.TempDir(), "secret")
		if err := os.WriteFile(file, []byte(secret), 0o600); err != nil {
			t.Fatal(err)
		}
		return serve(t, append(flags, "--only", "chat", "--cluster", "tides", "--cluster-listen", "127.0.0.1:0", "--cluster-secret-file", file)...)
	}
	first := begin("a secret of the first server")
	second := begin("a secret of the second server", "--cluster-peers", first.clusterAddress(t))
	for _, p := range []*program{first, second} {
		p.await(t, "the same database or --cluster-secret-file")
	}
}

// clusterAddress returns the address for the other servers, which the log has.
func (p *program) clusterAddress(t *testing.T) string {
	t.Helper()
	p.await(t, "node of a cluster")
	_, after, _ := strings.Cut(p.log(), "node of a cluster")
	_, after, _ = strings.Cut(after, " address=")
	address, _, _ := strings.Cut(after, " ")
	return address
}

// TestCluster_TLSSettings: each is refused at the start, with what to do.
func TestCluster_TLSSettings(t *testing.T) {
	t.Parallel()
	a, b := madeCert(t, time.Hour), madeCert(t, time.Hour)
	ended := madeCert(t, -time.Hour)
	none := filepath.Join(t.TempDir(), "none")
	alone := "--cluster a --only chat --cluster-listen 127.0.0.1:0 --cluster-secret-file " + longSecret(t)
	for _, c := range []struct{ flags, want string }{
		{"--cluster-tls-cert-file x --cluster-tls-key-file x --cluster-tls-ca-file x", "without --cluster NAME"},
		{"--nats-ca-file x", "without --cluster NAME"},
		{alone + " --cluster-tls-cert-file " + a.CertFile, "give all three, or none"},
		{alone + " --cluster-tls-ca-file " + a.CertFile, "give all three, or none"},
		{alone + " --nats-ca-file " + a.CertFile, "are for --nats"},
		{alone + " --nats-key-file " + a.CertFile, "give both"},
		{"--cluster a --only chat --nats tls://127.0.0.1:1 --cluster-tls-cert-file x --cluster-tls-key-file x --cluster-tls-ca-file x", "give --nats-ca-file"},
		{"--cluster a --only chat --nats tls://127.0.0.1:1 --nats-cert-file x", "give both"},
		{"--cluster a --only chat --nats tls://127.0.0.1:1 --nats-ca-file " + none, none},
		{alone + own(none, a.KeyFile, a.CertFile), "name a PEM file that this server can read"},
		{alone + own(a.CertFile, a.KeyFile, none), "--cluster-tls-ca-file"},
		{alone + own(a.CertFile, a.KeyFile, a.KeyFile), "has no certificate"},
		{alone + own(a.CertFile, b.KeyFile, a.CertFile), "give the certificate of this key"},
		{alone + own(a.CertFile, a.KeyFile, b.CertFile), "the other servers would refuse the certificate"},
		{alone + own(ended.CertFile, ended.KeyFile, ended.CertFile), "expired"},
	} {
		code, _, errOut := run(t, nil, append([]string{"serve", "--port", "0"}, strings.Fields(c.flags)...)...)
		if code != cli.ExitUsage || !strings.Contains(errOut, c.want) {
			t.Errorf("%s: exit code %d, and not %q in\n%s", c.flags, code, c.want, errOut)
		}
	}
}

func own(cert, key, ca string) string {
	return fmt.Sprintf(" --cluster-tls-cert-file %s --cluster-tls-key-file %s --cluster-tls-ca-file %s", cert, key, ca)
}
