package cli

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"

	"golang.org/x/crypto/argon2"

	"github.com/tidewire/tidewire/internal/certs"
	"github.com/tidewire/tidewire/internal/relay/natsrelay"
)

// clusterTLSFlags are the certificates of the connections between servers of a cluster, if they are an operator's, and those for NATS servers.
type clusterTLSFlags struct {
	ClusterTLSCertFile string `name:"cluster-tls-cert-file" placeholder:"FILE" help:"File with a certificate for the other servers of the cluster, in PEM, followed by those of its issuers. It is for servers and clients; the names in it do not matter. The server reads the file again when it changes. Default: the server makes a certificate, which only servers with the secret of the cluster accept."`
	ClusterTLSKeyFile  string `name:"cluster-tls-key-file" placeholder:"FILE" help:"File with the key of that certificate, in PEM."`
	ClusterTLSCAFile   string `name:"cluster-tls-ca-file" placeholder:"FILE" help:"Certificates, in PEM, with which those of the other servers are checked. The server reads the file only when it starts."`
	NATSCAFile         string `name:"nats-ca-file" placeholder:"FILE" help:"Certificates, in PEM, with which those of the servers of --nats are checked. They then have to use TLS. Default: those of the system, with --nats tls://…"`
	NATSCertFile       string `name:"nats-cert-file" placeholder:"FILE" help:"File with a certificate for the servers of --nats, in PEM, if they want one."`
	NATSKeyFile        string `name:"nats-key-file" placeholder:"FILE" help:"File with the key of that certificate, in PEM."`
}

// set reports whether one of the flags is given.
func (f clusterTLSFlags) set() bool { return f != clusterTLSFlags{} }

// check returns which flags contradict each other. nats is the address of --nats.
func (f clusterTLSFlags) check(nats string) error {
	own, pair := f.ClusterTLSCertFile != "", f.NATSCertFile != ""
	switch {
	case own != (f.ClusterTLSKeyFile != "") || own != (f.ClusterTLSCAFile != ""):
		return errors.New("--cluster-tls-cert-file, --cluster-tls-key-file and --cluster-tls-ca-file belong together: give all three, or none")
	case own && nats != "":
		return errors.New("--cluster-tls-… are for the server inside the process: with --nats, give --nats-ca-file, --nats-cert-file and --nats-key-file")
	case pair != (f.NATSKeyFile != ""):
		return errors.New("--nats-cert-file and --nats-key-file belong together: give both")
	case nats == "" && cmp.Or(f.NATSCAFile, f.NATSCertFile) != "":
		return errors.New("--nats-ca-file, --nats-cert-file and --nats-key-file are for --nats")
	}
	return nil
}

// clusterCertificates returns the certificates of an operator's authority, or nil if there are none. Run files while the server runs.
func (c *serveCmd) clusterCertificates(p *process) (own *natsrelay.Certificates, files *certs.Files, err error) {
	if c.ClusterTLSCertFile == "" {
		return nil, nil, nil
	}
	if files, err = certs.OpenFiles(c.ClusterTLSCertFile, c.ClusterTLSKeyFile, p.log); err != nil {
		return nil, nil, exit(ExitUsage, "--cluster-tls-cert-file: %w", err)
	}
	current := func() *tls.Certificate {
		pair, _ := files.Certificate(nil) // never fails
		return pair
	}
	cas, err := readCAs(c.ClusterTLSCAFile)
	if err == nil {
		err = acceptable(current(), cas)
	}
	if err != nil {
		return nil, nil, exit(ExitUsage, "%w", err)
	}
	return &natsrelay.Certificates{Own: current, CAs: cas}, files, nil
}

// readCAs reads the certificates of authorities.
func readCAs(file string) (*x509.CertPool, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("--cluster-tls-ca-file: %w: name a PEM file that this server can read", err)
	}
	cas := x509.NewCertPool()
	if !cas.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("--cluster-tls-ca-file: %s has no certificate: want PEM, which begins with -----BEGIN CERTIFICATE-----", file)
	}
	return cas, nil
}

// acceptable returns why other servers with the same authorities would refuse a certificate. A server connects and is connected to, so it has to be for both.
func acceptable(own *tls.Certificate, cas *x509.CertPool) error {
	issuers := x509.NewCertPool()
	for _, der := range own.Certificate[1:] {
		if issuer, err := x509.ParseCertificate(der); err == nil { // tls.X509KeyPair checks only the first one
			issuers.AddCert(issuer)
		}
	}
	for _, usage := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
		if _, err := own.Leaf.Verify(x509.VerifyOptions{Roots: cas, Intermediates: issuers, KeyUsages: []x509.ExtKeyUsage{usage}}); err != nil {
			return fmt.Errorf("the other servers would refuse the certificate of --cluster-tls-cert-file: %w: want one of a CA in --cluster-tls-ca-file, for servers and clients (serverAuth and clientAuth)", err)
		}
	}
	return nil
}

// strengthen makes a secret that people may have chosen expensive to guess: a stranger who connects gets a certificate with which guesses can be checked.
// The cost is what OWASP recommends for Argon2id: 19 MiB and two passes, some 20 ms.
func strengthen(secret, cluster string) string {
	return fmt.Sprintf("%x", argon2.IDKey([]byte(secret), []byte("tidewire cluster "+cluster), 2, 19<<10, 1, 32))
}
