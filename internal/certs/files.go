package certs

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"time"
)

// lookEvery is how often the files are read. They are a few kilobytes, and a read finds every change: of the content,
// of a link, and on any file system.
const lookEvery = 10 * time.Second

// Files is a certificate and its key in two PEM files. Certificate is safe for concurrent use.
type Files struct {
	certFile, keyFile string
	log               *slog.Logger
	current           atomic.Pointer[tls.Certificate]
	seen              [sha256.Size]byte // of the contents that were looked at last
	reminder          reminder
}

// OpenFiles reads the files. The first certificate in certFile is the server's own, and those after it are of its
// issuers. The error says what to do.
func OpenFiles(certFile, keyFile string, log *slog.Logger) (*Files, error) {
	f := &Files{certFile: certFile, keyFile: keyFile, log: log, reminder: reminder{log: log}}
	pair, sum, err := f.read()
	if err != nil {
		return nil, err
	}
	f.seen = sum
	f.current.Store(pair)
	if info, err := os.Stat(keyFile); err == nil && info.Mode().Perm()&0o077 != 0 {
		log.Warn("other users of this machine can read the key: chmod 600 "+keyFile, "mode", info.Mode().Perm())
	}
	return f, nil
}

// Certificate is for tls.Config.GetCertificate. New handshakes get the certificate that was read last.
func (f *Files) Certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return f.current.Load(), nil
}

// Run looks at the files every 10 s until ctx ends. It warns of a certificate that ends soon, at once and every day.
func (f *Files) Run(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		f.reminder.check(f.current.Load().Leaf, time.Now())
		select {
		case <-tick.C:
			f.look()
		case <-ctx.Done():
			return
		}
	}
}

// look takes a new pair from the files if they have changed. While they do not fit together, as in the middle of a
// replacement, it keeps the former pair.
func (f *Files) look() {
	pair, sum, err := f.read()
	if sum == f.seen {
		return
	}
	f.seen = sum
	if err != nil {
		f.log.Warn("the new certificate cannot be used, and the former one stays in use until the files change", "error", err, "ends", f.current.Load().Leaf.NotAfter)
		return
	}
	f.current.Store(pair)
	f.reminder = reminder{log: f.log}
	f.log.Info("new handshakes get the new certificate", "file", f.certFile, "names", names(pair.Leaf), "ends", pair.Leaf.NotAfter)
}

// read reads the pair. sum identifies the contents, also of those that cannot be used.
func (f *Files) read() (pair *tls.Certificate, sum [sha256.Size]byte, err error) {
	certPEM, err := os.ReadFile(f.certFile)
	if err != nil {
		return nil, sha256.Sum256([]byte(err.Error())), fmt.Errorf("certificate: %w: name a PEM file that this server can read", err)
	}
	keyPEM, err := os.ReadFile(f.keyFile)
	if err != nil {
		return nil, sha256.Sum256([]byte(err.Error())), fmt.Errorf("key: %w: name a PEM file that this server can read", err)
	}
	h := sha256.New()
	fmt.Fprintf(h, "%d\n", len(certPEM))
	h.Write(certPEM)
	h.Write(keyPEM)
	sum = [sha256.Size]byte(h.Sum(nil))
	pair, err = f.parse(certPEM, keyPEM)
	return pair, sum, err
}

func (f *Files) parse(certPEM, keyPEM []byte) (*tls.Certificate, error) {
	if !hasBlock(certPEM, "CERTIFICATE") {
		return nil, fmt.Errorf("%s has no certificate: want PEM, which begins with -----BEGIN CERTIFICATE-----", f.certFile)
	}
	if !hasBlock(keyPEM, "PRIVATE KEY") {
		return nil, fmt.Errorf("%s has no private key: want PEM, which begins with -----BEGIN PRIVATE KEY-----, without a passphrase", f.keyFile)
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, fmt.Errorf("%s and %s: %w: give the certificate of this key, followed by those of its issuers, and the key without a passphrase", f.certFile, f.keyFile, err)
	}
	return &pair, nil
}

// hasBlock reports whether text has a complete PEM block whose type ends like that. The key of a passphrase is none.
func hasBlock(text []byte, kind string) bool {
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if strings.HasSuffix(block.Type, kind) && !strings.HasPrefix(block.Type, "ENCRYPTED") {
			return true
		}
	}
	return false
}

// names lists what a certificate is for.
func names(leaf *x509.Certificate) string {
	all := append([]string(nil), leaf.DNSNames...)
	for _, ip := range leaf.IPAddresses {
		all = append(all, ip.String())
	}
	return strings.Join(all, " ")
}

const (
	// remindBefore is how long before the end of a certificate the warnings begin.
	remindBefore = 14 * 24 * time.Hour
	remindEvery  = 24 * time.Hour
)

// reminder warns of a certificate that ends soon, or has ended.
type reminder struct {
	log  *slog.Logger
	next time.Time // before which it is silent
}

func (r *reminder) check(leaf *x509.Certificate, now time.Time) {
	if now.Before(r.next) || now.Before(leaf.NotAfter.Add(-remindBefore)) {
		return
	}
	r.next = now.Add(remindEvery)
	if now.After(leaf.NotAfter) {
		r.log.Warn("the certificate has ended, and clients refuse it: renew it", "names", names(leaf), "ended", leaf.NotAfter)
		return
	}
	r.log.Warn("the certificate ends soon: renew it", "names", names(leaf), "ends", leaf.NotAfter)
}
