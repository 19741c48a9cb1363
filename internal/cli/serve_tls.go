package cli

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/tidewire/tidewire/internal/certs"
	"github.com/tidewire/tidewire/websocket"
)

// tlsFlags are the certificates of the server: from files, or from an ACME server. Without them it serves plain HTTP.
type tlsFlags struct {
	TLSCertFile string   `name:"tls-cert-file" placeholder:"FILE" help:"File with the certificate in PEM, followed by those of its issuers: the server then serves https:// and wss:// alone. It reads the file again when it changes."`
	TLSKeyFile  string   `name:"tls-key-file" placeholder:"FILE" help:"File with the key of the certificate, in PEM."`
	TLSHost     []string `name:"tls-host" placeholder:"NAME" help:"Get a certificate for this host name from an ACME server, such as Let's Encrypt, whose terms of service you accept. That server connects to port 443 of the host. May be repeated."`
	TLSCache    string   `name:"tls-cache" placeholder:"DIR" help:"Where the certificates of --tls-host are kept. Default: the directory of --data-dir, with -certificates at the end."`
	ACMEURL     string   `name:"acme-url" placeholder:"URL" help:"Directory of the ACME server. Default: Let's Encrypt."`
	ACMECAFile  string   `name:"acme-ca-file" placeholder:"FILE" help:"Certificates, in PEM, with which that of a private ACME server is checked. Default: those of the system."`
	ACMEEmail   string   `name:"acme-email" placeholder:"ADDRESS" help:"Where the ACME server sends messages. Default: none."`
}

// certificates are those of a server with TLS.
type certificates interface {
	Certificate(*tls.ClientHelloInfo) (*tls.Certificate, error)
	Run(ctx context.Context)
}

// check returns which flags contradict each other.
func (f *tlsFlags) check() error {
	files := f.TLSCertFile != "" || f.TLSKeyFile != ""
	switch {
	case files && (f.TLSCertFile == "" || f.TLSKeyFile == ""):
		return fmt.Errorf("--tls-cert-file and --tls-key-file belong together: give both")
	case files && len(f.TLSHost) > 0:
		return fmt.Errorf("--tls-host gets certificates by itself: leave it out, or leave out --tls-cert-file and --tls-key-file")
	case len(f.TLSHost) == 0 && cmp.Or(f.TLSCache, f.ACMEURL, f.ACMECAFile, f.ACMEEmail) != "":
		return fmt.Errorf("--tls-cache, --acme-url, --acme-ca-file and --acme-email need the names of the server: give --tls-host")
	}
	for _, host := range f.TLSHost {
		if err := checkTLSHost(host); err != nil {
			return err
		}
	}
	if u, err := url.Parse(f.ACMEURL); f.ACMEURL != "" && (err != nil || u.Scheme != "https" || u.Host == "") {
		return fmt.Errorf("--acme-url %s: want https://…, the address of the ACME server's directory", f.ACMEURL)
	}
	return nil
}

// checkTLSHost rejects what no certificate can be had for by the challenge tls-alpn-01.
func checkTLSHost(host string) error {
	const want = "give the name that clients use, such as rt.example.com, without a scheme and a port"
	_, notAddress := netip.ParseAddr(strings.Trim(host, "[]"))
	switch {
	case strings.Contains(host, "*"):
		return fmt.Errorf("--tls-host %s: there are no certificates for wildcards here: name each host", host)
	case notAddress == nil:
		return fmt.Errorf("--tls-host %s: there are no certificates for addresses: %s", host, want)
	case strings.ContainsAny(host, ":/@ ") || !strings.Contains(strings.Trim(host, "."), ".") || strings.HasSuffix(host, "."):
		return fmt.Errorf("--tls-host %s: %s", host, want)
	}
	return nil
}

// certificates returns the certificates and the protocols that the server offers; nil if it serves plain HTTP.
func (c *serveCmd) certificates(p *process) (source certificates, protocols []string, err error) {
	// WebSocket needs HTTP/1.1. HTTP/2 would be a second server, with attacks of its own.
	protocols = []string{"http/1.1"}
	switch {
	case c.TLSCertFile != "":
		source, err = certs.OpenFiles(c.TLSCertFile, c.TLSKeyFile, p.log)
	case len(c.TLSHost) > 0:
		protocols = append(protocols, certs.Protocol)
		source, err = certs.NewACME(certs.ACMEConfig{
			Hosts: c.TLSHost, Dir: cmp.Or(c.TLSCache, strings.TrimRight(c.DataDir, "/")+"-certificates"),
			URL: c.ACMEURL, CAFile: c.ACMECAFile, Email: c.ACMEEmail, Log: p.log,
		})
	default:
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, exit(ExitUsage, "%w", err)
	}
	return source, protocols, nil
}

// secure makes the listeners accept TLS, if the server has certificates. run looks after the certificates until its
// context ends, and may be nil.
func (c *serveCmd) secure(p *process, listeners []net.Listener) (secured []net.Listener, run func(context.Context), err error) {
	source, protocols, err := c.certificates(p)
	if err != nil || source == nil {
		return listeners, nil, err
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: protocols, GetCertificate: source.Certificate}
	secured = slices.Clone(listeners)
	for i, l := range listeners {
		secured[i] = websocket.NewTLSListener(l, config)
	}
	return secured, source.Run, nil
}
