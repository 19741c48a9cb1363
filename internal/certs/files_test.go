package certs

import (
	"bytes"
	"crypto/tls"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

const month = 30 * 24 * time.Hour

// made is a certificate in files of its own.
func made(t *testing.T, life time.Duration) *SelfSigned {
	t.Helper()
	s, err := MakeSelfSigned(t.TempDir(), life, "rt.example.com", "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func content(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func write(t *testing.T, path string, text []byte) {
	t.Helper()
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// opened returns Files of a pair, and what they log.
func opened(t *testing.T, s *SelfSigned) (*Files, *bytes.Buffer) {
	t.Helper()
	said := &bytes.Buffer{}
	f, err := OpenFiles(s.CertFile, s.KeyFile, slog.New(slog.NewTextHandler(said, nil)))
	if err != nil {
		t.Fatal(err)
	}
	return f, said
}

// TestFiles_Replaced: a pair that does not load keeps the former one and is logged once; a good one serves new
// handshakes.
func TestFiles_Replaced(t *testing.T) {
	t.Parallel()
	a, b := made(t, month), made(t, month)
	f, said := opened(t, a)
	first := f.current.Load()
	certA, keyA, certB, keyB := content(t, a.CertFile), content(t, a.KeyFile), content(t, b.CertFile), content(t, b.KeyFile)
	for name, broken := range map[string][2][]byte{
		"key of another": {certA, keyB}, "certificate of another": {certB, keyA}, "empty certificate": {nil, keyA}, "empty key": {certA, nil},
		"half a certificate": {certB[:len(certB)/2], keyB}, "half a key": {certB, keyB[:len(keyB)/2]}, "swapped": {keyA, certA},
	} {
		said.Reset()
		write(t, a.CertFile, broken[0])
		write(t, a.KeyFile, broken[1])
		for range 3 {
			f.look()
		}
		if f.current.Load() != first || strings.Count(said.String(), "level=WARN") != 1 {
			t.Errorf("%s: replaced %v, log %s", name, f.current.Load() != first, said)
		}
	}
	said.Reset()
	if err := os.Remove(a.KeyFile); err != nil {
		t.Fatal(err)
	}
	f.look()
	f.look()
	if f.current.Load() != first || strings.Count(said.String(), "level=WARN") != 1 {
		t.Errorf("without a key: log %s", said)
	}
	said.Reset()
	write(t, a.CertFile, certB)
	write(t, a.KeyFile, keyB)
	f.look()
	f.look()
	now := f.current.Load()
	if now == first || strings.Count(said.String(), "level=INFO") != 1 || !strings.Contains(said.String(), now.Leaf.NotAfter.UTC().Format("2006-01-02")) {
		t.Errorf("the new pair: log %s", said)
	}
}

// TestOpenFiles_Errors: the error says which file, and what to do.
func TestOpenFiles_Errors(t *testing.T) {
	t.Parallel()
	a, b := made(t, month), made(t, month)
	empty := filepath.Join(t.TempDir(), "empty")
	write(t, empty, nil)
	locked := filepath.Join(t.TempDir(), "locked")
	write(t, locked, []byte("-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n"))
	for says, files := range map[string][2]string{
		"name a PEM file that this server can read": {filepath.Join(empty, "none"), a.KeyFile},
		"has no certificate":                        {empty, a.KeyFile},
		"has no private key":                        {a.CertFile, empty},
		"without a passphrase":                      {a.CertFile, locked},
		"give the certificate of this key":          {a.CertFile, b.KeyFile},
	} {
		if _, err := OpenFiles(files[0], files[1], slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q", err, says)
		}
	}
}

// TestOpenFiles_ReadableKey: a key that others can read is a warning.
func TestOpenFiles_ReadableKey(t *testing.T) {
	t.Parallel()
	s := made(t, month)
	if _, said := opened(t, s); said.Len() > 0 {
		t.Errorf("log %s", said)
	}
	if err := os.Chmod(s.KeyFile, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, said := opened(t, s); !strings.Contains(said.String(), "chmod 600 "+s.KeyFile) {
		t.Errorf("log %s", said)
	}
}

// TestReminder: a certificate that ends soon or has ended is a warning, at once and then every day.
func TestReminder(t *testing.T) {
	t.Parallel()
	leaf := func(life time.Duration) *Files { f, _ := opened(t, made(t, life)); return f }
	for _, c := range []struct {
		life time.Duration
		want string
	}{{month, ""}, {13 * 24 * time.Hour, "ends soon"}, {-time.Hour, "has ended"}} {
		said := &bytes.Buffer{}
		r := reminder{log: slog.New(slog.NewTextHandler(said, nil))}
		now := time.Now()
		for hour := range 25 {
			r.check(leaf(c.life).current.Load().Leaf, now.Add(time.Duration(hour)*time.Hour))
		}
		if n := strings.Count(said.String(), "level=WARN"); !strings.Contains(said.String(), c.want) || (c.want == "") != (n == 0) || c.want != "" && n != 2 {
			t.Errorf("%v: %d lines, want %q: %s", c.life, n, c.want, said)
		}
	}
}

// TestFiles_SwapDuringHandshakes: handshakes during a replacement get one of the two certificates, and none fails.
func TestFiles_SwapDuringHandshakes(t *testing.T) {
	t.Parallel()
	a, b := made(t, month), made(t, month)
	f, _ := opened(t, a)
	a.Roots.AppendCertsFromPEM(content(t, b.CertFile))
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{GetCertificate: f.Certificate})
	if err != nil {
		t.Fatal(err)
	}
	var serving, dialing sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { io.Copy(conn, conn); conn.Close() })
		}
	})
	swapped := make(chan struct{})
	for range 2 {
		dialing.Go(func() {
			for over := false; !over; {
				select {
				case <-swapped:
					over = true // one more handshake after the replacement
				default:
				}
				conn, err := tls.Dial("tcp", l.Addr().String(), &tls.Config{RootCAs: a.Roots})
				if err != nil {
					t.Error(err)
					return
				}
				if over && conn.ConnectionState().PeerCertificates[0].Subject.String() != f.current.Load().Leaf.Subject.String() {
					t.Error("a handshake after the replacement got the former certificate")
				}
				conn.Close()
			}
		})
	}
	certA, keyA, certB, keyB := content(t, a.CertFile), content(t, a.KeyFile), content(t, b.CertFile), content(t, b.KeyFile)
	for range 10 {
		for _, pair := range [][2][]byte{{certB, keyB}, {certA, keyA}} {
			write(t, a.CertFile, pair[0])
			f.look() // in the middle
			write(t, a.KeyFile, pair[1])
			f.look()
		}
	}
	close(swapped)
	dialing.Wait()
	l.Close()
	serving.Wait()
}
