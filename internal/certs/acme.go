package certs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/crypto/acme"
	"golang.org/x/crypto/acme/autocert"
)

const (
	// askTimeout is how long one request to the ACME server may take.
	askTimeout = 30 * time.Second
	// firstRetry and maxRetry limit the pause after which a failed certificate is asked for again; it doubles each
	// time. Let's Encrypt allows five failures an hour.
	firstRetry = 2 * time.Minute
	maxRetry   = 2 * time.Hour
	// renewEvery is how often the certificates are looked at. Package autocert renews them by itself.
	renewEvery = time.Hour
)

// ACMEConfig configures NewACME.
type ACMEConfig struct {
	Hosts  []string // for which certificates are asked, and no others
	Dir    string   // where they are kept
	URL    string   // directory of the ACME server. Defaults to Let's Encrypt
	CAFile string   // certificates that the ACME server's own is checked with. Defaults to those of the system
	Email  string   // for messages of the ACME server. Defaults to none
	Log    *slog.Logger
}

// ACME gets certificates from an ACME server. The challenge is tls-alpn-01: the ACME server connects to port 443 of the
// host. Certificate is safe for concurrent use.
type ACME struct {
	cfg     ACMEConfig
	manager *autocert.Manager
}

// NewACME prepares the directory, and asks for nothing yet. The error says what to do.
func NewACME(cfg ACMEConfig) (*ACME, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	if cfg.CAFile != "" {
		roots, err := readRoots(cfg.CAFile)
		if err != nil {
			return nil, err
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: roots}
	}
	if err := prepareDir(cfg.Dir, cfg.Log); err != nil {
		return nil, err
	}
	return &ACME{cfg, &autocert.Manager{
		Prompt: autocert.AcceptTOS, Cache: autocert.DirCache(cfg.Dir), HostPolicy: autocert.HostWhitelist(cfg.Hosts...), Email: cfg.Email,
		Client: &acme.Client{DirectoryURL: cfg.URL, HTTPClient: &http.Client{Transport: transport, Timeout: askTimeout}, UserAgent: "tidewire"},
	}}, nil
}

func readRoots(path string) (*x509.CertPool, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("certificates of the ACME server: %w: name a PEM file that this server can read", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s has no certificate: want PEM, which begins with -----BEGIN CERTIFICATE-----", path)
	}
	return roots, nil
}

// prepareDir creates the directory, and checks that it can be written: certificates that are lost at each restart soon
// exceed the limits of an ACME server.
func prepareDir(dir string, log *slog.Logger) error {
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		probe := filepath.Join(dir, ".writable")
		if err = os.WriteFile(probe, nil, 0o600); err == nil {
			err = os.Remove(probe)
		}
	}
	if err != nil {
		return fmt.Errorf("certificates cannot be kept: %w: name a directory that this server can write", err)
	}
	if info, err := os.Stat(dir); err == nil && info.Mode().Perm()&0o077 != 0 {
		log.Warn("other users of this machine can look for keys there: chmod 700 "+dir, "mode", info.Mode().Perm())
	}
	return nil
}

// Certificate is for tls.Config.GetCertificate. A handshake for another host fails without a request to the ACME server.
func (a *ACME) Certificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	return a.manager.GetCertificate(hello)
}

// Protocol is the ALPN protocol of the challenge, for tls.Config.NextProtos.
const Protocol = acme.ALPNProto

// Run gets the certificates before a client needs them, until ctx ends. Call it when the server accepts connections.
func (a *ACME) Run(ctx context.Context) {
	remind := make(map[string]*reminder)
	for _, host := range a.cfg.Hosts {
		remind[host] = &reminder{log: a.cfg.Log}
	}
	known := make(map[string]time.Time) // ends of the certificates
	for pause := firstRetry; ; {
		wait := renewEvery
		for _, host := range a.cfg.Hosts {
			if ctx.Err() != nil {
				return
			}
			leaf, err := a.get(host)
			if err != nil {
				wait = pause
				a.cfg.Log.Warn("no certificate from the ACME server: it must reach port 443 of the host, and its text says what else to do", "host", host, "again_in", wait, "error", err)
				continue
			}
			if known[host] != leaf.NotAfter {
				known[host] = leaf.NotAfter
				a.cfg.Log.Info("certificate", "host", host, "ends", leaf.NotAfter)
			}
			remind[host].check(leaf, time.Now())
		}
		if wait < renewEvery {
			pause = min(2*pause, maxRetry)
		} else {
			pause = firstRetry
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
	}
}

// get returns the certificate that most clients get: package autocert chooses its key by what the client supports.
func (a *ACME) get(host string) (*x509.Certificate, error) {
	c, err := a.manager.GetCertificate(&tls.ClientHelloInfo{
		ServerName: host, CipherSuites: []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256},
		SignatureSchemes: []tls.SignatureScheme{tls.ECDSAWithP256AndSHA256}, SupportedCurves: []tls.CurveID{tls.CurveP256},
	})
	if err != nil {
		return nil, err
	}
	return c.Leaf, nil
}
