package natsrelay

import (
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"time"
)

// peerName is the name in the certificates that nodes make for themselves, and the only one that they accept in them. It says nothing of the cluster, because
// a stranger who connects sees it.
const peerName = "node.tidewire.internal"

// Certificates are those of a certification authority that an operator runs.
type Certificates struct {
	// Own returns the certificate of this node, for servers and for clients. It is called for each connection, by several
	// goroutines at a time.
	Own func() *tls.Certificate
	// CAs are the authorities whose certificates other nodes have to show.
	CAs *x509.CertPool
}

// routeTLS returns the TLS of the connections between nodes. They are always encrypted, and both sides show a certificate.
func routeTLS(cfg Config) (*tls.Config, error) {
	if c := cfg.Certificates; c != nil {
		config := mutual(c.Own, c.CAs, peerName)
		anyName(config)
		return config, nil
	}
	own, cas, err := certify(cfg.Cluster, cfg.Secret)
	if err != nil {
		return nil, fmt.Errorf("make a certificate for the other nodes: %w", err)
	}
	return mutual(func() *tls.Certificate { return own }, cas, peerName), nil
}

// mutual returns a configuration for both sides of a connection. name is the name that the side which accepts has to have.
func mutual(own func() *tls.Certificate, cas *x509.CertPool, name string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, ServerName: name, RootCAs: cas, ClientCAs: cas, ClientAuth: tls.RequireAndVerifyClientCert,
		// Each connection is verified in full.
		SessionTicketsDisabled: true,
		// Functions, and not Certificates: a new certificate then needs no reload of NATS, which would close the connection of this process.
		GetCertificate:       func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return own(), nil },
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return own(), nil },
	}
}

// anyName makes the side that connects accept each name in a certificate of the authorities, as the side that accepts does anyway. The authority is for
// this cluster alone, so a name proves nothing more. And NATS 2.15 compares it with a name that it has learnt from another node, if the address of
// this one is a number.
func anyName(config *tls.Config) {
	config.InsecureSkipVerify = true // VerifyConnection does it
	config.VerifyConnection = func(state tls.ConnectionState) error {
		issuers := x509.NewCertPool()
		for _, issuer := range state.PeerCertificates[1:] {
			issuers.AddCert(issuer)
		}
		_, err := state.PeerCertificates[0].Verify(x509.VerifyOptions{
			Roots: config.RootCAs, Intermediates: issuers, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		})
		return err
	}
}

// certify makes a certificate for this process. The secret and the name of the cluster determine the key of the authority that signs it. So all nodes
// have the same authority, and a certificate proves that its owner knows the secret.
//
// The certificates have no end. It would protect from nothing: the key of a node is in the memory of its process only, where the secret is, too. And
// a wrong clock would divide the cluster.
func certify(cluster, secret string) (*tls.Certificate, *x509.CertPool, error) {
	seed, err := hkdf.Key(sha256.New, []byte(secret), nil, "tidewire certification authority of cluster "+cluster, ed25519.SeedSize)
	if err != nil {
		return nil, nil, err
	}
	caKey := ed25519.NewKeyFromSeed(seed)
	template := authority()
	ca, err := sign(template, template, caKey.Public(), caKey)
	if err != nil {
		return nil, nil, err
	}
	public, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	template, err = member()
	if err != nil {
		return nil, nil, err
	}
	leaf, err := sign(template, ca, public, caKey)
	if err != nil {
		return nil, nil, err
	}
	cas := x509.NewCertPool()
	cas.AddCert(ca)
	return &tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: key, Leaf: leaf}, cas, nil
}

var (
	always = time.Unix(0, 0).UTC()
	// never is what RFC 5280 has for certificates without an end.
	never = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
)

// authority is the same on all nodes.
func authority() *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "tidewire cluster"}, NotBefore: always, NotAfter: never,
		KeyUsage: x509.KeyUsageCertSign, IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
	}
}

func member() (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	return &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "tidewire node"}, NotBefore: always, NotAfter: never, DNSNames: []string{peerName},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		BasicConstraintsValid: true,
	}, err
}

func sign(template, parent *x509.Certificate, public any, key ed25519.PrivateKey) (*x509.Certificate, error) {
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, key)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}
