package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/cli"
)

// startsOf returns refusals of starts with these flags, each with the text that the error has.
func startsOf(start string, all [][2]string) (refusals []refusal) {
	for _, c := range all {
		refusals = append(refusals, refusal{start + " " + c[0], cli.ExitUsage, c[1]})
	}
	return refusals
}

// TestServe_Refused: settings that contradict each other, and files that cannot be used, end the start, and the error says what to give.
func TestServe_Refused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	none, good, short := filepath.Join(dir, "none"), secretFile(t, serverSecret), secretFile(t, []byte("short"))
	refused(t, startsOf("serve --port 0 --only chat", [][2]string{
		{"--host 0.0.0.0", "--open"},
		{"--host ::", "--auth-secret-file"},
		{"--rule 'user: read stream:a'", "need tokens"},
		{"--open --auth-secret-file " + good, "leave it out"},
		{"--auth-secret-file " + good + " --rule 'user: reed stream:a'", "no verb of stream"},
		{"--auth-secret-file " + good + " --rule 'read stream:a'", "want ROLE: RULE"},
		{"--auth-secret-file " + short, "at least 32"},
		{"--auth-secret-file " + none, "no such file"},
		{"--auth-public-key-file " + good, "public key in PEM"},
		{"--auth-jwks-url https://id.example.com/jwks", "needs the issuer"},
		{"--auth-jwks-url http://id.example.com/jwks --auth-issuer x", "want https"},
		{"--auth-jwks-url https://id.example.com/jwks --auth-issuer x --auth-secret-file " + good, "give one of them"},
		{"--auth-secret-file " + good + " --auth-audience ''", "audience is missing"},
		{"--auth-secret-file " + good + " --auth-leeway x", "--auth-leeway: inval"},
		{"--auth-sql app.may", "need tokens"},
		{"--auth-api-keys", "need a database"},
		{"--auth-secret-file " + good + " --auth-sql app.may", "need a database"},
		{"--trusted-proxy 10.0.0.0/99", "want an address or a network"},
		{"--max-connections=-1", "--max-connections is -1"},
		{"--max-pending=-1", "--max-pending is -1"},
		{"--request-rate=-5", "--request-rate is"},
		{"--max-json-depth 3", "--max-json-depth is 3"},
		{"--max-header-bytes 1KiB", "--max-header-bytes"},
		{"--presence-stream who", "leave out --only"},
		{"--room-history=1d", "--stored-rooms"},
		{"--room-history-bytes=1GB", "--stored-rooms"},
		{"--room-history-count=3", "--room-history-count"},
		{"--room-history-count=10001 --stored-rooms=*", "--room-history-count"},
	}))
	refused(t, []refusal{
		{"test-proxy localhost", cli.ExitUsage, "want HOST:PORT"},
		{"test-proxy 127.0.0.1:1 --listen nowhere", cli.ExitListen, "--listen"},
		{"test-proxy 127.0.0.1:1 --control nowhere", cli.ExitListen, "--control"},
		{"serve --port 0 --read-url postgres://%zz --database-url " + migrated(t).URL, cli.ExitUsage, "--read-url"},
	})
	p := serve(t, "--only", "chat", "--host", "0.0.0.0", "--open")
	if !strings.Contains(p.Log(), "serving without authentication") {
		t.Error("no warning")
	}
}

// TestServe_RefusedLanes: the values of lanes, of flags and of the file.
func TestServe_RefusedLanes(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "lanes.toml")
	if err := os.WriteFile(file, []byte("[server]\nports = 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	refused(t, startsOf("serve --only lanes --port 0", [][2]string{
		{"--config " + file, file + ": line 2: unknown key server.ports"},
		{"--config " + file + ".missing", ".missing"},
		{"--dummy-message-size 0", "--dummy-message-size: 0 bytes"},
		{"--dummy-message-size 65MB", "want 1 to 67108864"},
		{"--dummy-message-size=-1", "--dummy-message-size"},
		{"--dummy-message-size much", "much"},
		{"--dummy-message-duration 0", "--dummy-message-duration is 0s"},
		{"--dummy-message-duration often", "often"},
		{"--latency none", "--latency"},
	}))
}

// TestServe_RefusedTLS: certificates of the server.
func TestServe_RefusedTLS(t *testing.T) {
	notShort(t)
	t.Parallel()
	a, b := madeCert(t, time.Hour), madeCert(t, time.Hour)
	none := filepath.Join(t.TempDir(), "none")
	refused(t, startsOf("serve --only chat --port 0", [][2]string{
		{"--tls-cert-file " + a.CertFile, "give both"},
		{"--tls-key-file " + a.KeyFile, "give both"},
		{"--tls-cert-file " + none + " --tls-key-file " + a.KeyFile, "name a PEM file that this server can read"},
		{"--tls-cert-file " + a.CertFile + " --tls-key-file " + b.KeyFile, "give the certificate of this key"},
		{"--tls-cert-file " + a.KeyFile + " --tls-key-file " + a.CertFile, "has no certificate"},
		{"--tls-cert-file " + a.CertFile + " --tls-key-file " + a.KeyFile + " --tls-host rt.example.com", "leave it out"},
		{"--acme-email ops@example.com", "give --tls-host"},
		{"--tls-host rt.example.com:443", "without a scheme and a port"},
		{"--tls-host https://rt.example.com", "without a scheme and a port"},
		{"--tls-host localhost", "without a scheme and a port"},
		{"--tls-host *.example.com", "name each host"},
		{"--tls-host 192.0.2.1", "no certificates for addresses"},
		{"--tls-host 2001:db8::1", "no certificates for addresses"},
		{"--tls-host rt.example.com --acme-url http://ca.example.com/dir", "want https://"},
		{"--tls-host rt.example.com --tls-cache " + filepath.Join(a.CertFile, "certificates"), "name a directory that this server can write"},
		{"--tls-host rt.example.com --tls-cache " + t.TempDir() + " --acme-ca-file " + none, "name a PEM file that this server can read"},
	}))
}

// TestServe_RefusedCluster: settings of a cluster, and its certificates.
func TestServe_RefusedCluster(t *testing.T) {
	notShort(t)
	t.Parallel()
	a, b, ended := madeCert(t, time.Hour), madeCert(t, time.Hour), madeCert(t, -time.Hour)
	none := filepath.Join(t.TempDir(), "none")
	secret := " --cluster-secret-file " + secretFile(t, serverSecret)
	const chat, nats = "--cluster a --only chat", "--cluster a --only chat --nats tls://127.0.0.1:1"
	alone := chat + " --cluster-listen 127.0.0.1:0" + secret
	own := func(cert, key, ca string) string {
		return alone + " --cluster-tls-cert-file " + cert + " --cluster-tls-key-file " + key + " --cluster-tls-ca-file " + ca
	}
	refused(t, startsOf("serve --port 0", [][2]string{
		{"--cluster-listen 127.0.0.1:0 --cluster-peers a:1", "without --cluster NAME"},
		{"--nats nats://127.0.0.1:1", "without --cluster NAME"},
		{"--cluster a.b", "letters, digits, - and _"},
		{"--cluster a --only lanes", "--only lanes has none"},
		{chat, "--cluster-peers and --cluster-secret-file"},
		{chat + " --cluster-peers b:1", "needs --cluster-secret-file"},
		{chat + " --cluster-secret-file " + secretFile(t, []byte("short")), "at least 16 characters"},
		{chat + " --cluster-secret-file /nowhere", "/nowhere"},
		{chat + " --nats nats://127.0.0.1:1 --cluster-peers b:1", "leave out"},
		{chat + " --nats nats://127.0.0.1:1", "connect to NATS"},
		{chat + " --cluster-listen 6222 --cluster-secret-file /x", "want HOST:PORT"},
		{chat + " --nats-creds /x" + secret, "is for --nats"},
		{chat + " --cluster-advertise b" + secret, "want HOST:PORT"},
		{"--cluster-tls-cert-file x --cluster-tls-key-file x --cluster-tls-ca-file x", "without --cluster NAME"},
		{"--nats-ca-file x", "without --cluster NAME"},
		{alone + " --cluster-tls-cert-file " + a.CertFile, "give all three, or none"},
		{alone + " --cluster-tls-ca-file " + a.CertFile, "give all three, or none"},
		{alone + " --nats-ca-file " + a.CertFile, "are for --nats"},
		{alone + " --nats-key-file " + a.CertFile, "give both"},
		{nats + " --cluster-tls-cert-file x --cluster-tls-key-file x --cluster-tls-ca-file x", "give --nats-ca-file"},
		{nats + " --nats-cert-file x", "give both"},
		{nats + " --nats-ca-file " + none, none},
		{own(none, a.KeyFile, a.CertFile), "name a PEM file that this server can read"},
		{own(a.CertFile, a.KeyFile, none), "--cluster-tls-ca-file"},
		{own(a.CertFile, a.KeyFile, a.KeyFile), "has no certificate"},
		{own(a.CertFile, b.KeyFile, a.CertFile), "give the certificate of this key"},
		{own(a.CertFile, a.KeyFile, b.CertFile), "the other servers would refuse the certificate"},
		{own(ended.CertFile, ended.KeyFile, ended.CertFile), "expired"},
	}))
	refused(t, []refusal{{"serve --port 0 " + chat + " --cluster-listen 192.0.2.1:0" + secret, cli.ExitListen, "--cluster-listen"}})
}
