package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// SelfSigned is a certificate that only those trust who have it as a root: for measurements and tests.
type SelfSigned struct {
	CertFile, KeyFile string
	Roots             *x509.CertPool
}

// MakeSelfSigned makes a certificate for host names and addresses, which is valid for that time, in two files of dir.
func MakeSelfSigned(dir string, life time.Duration, hosts ...string) (*SelfSigned, error) {
	certificate, key, err := selfSigned(life, hosts)
	if err != nil {
		return nil, err
	}
	s := &SelfSigned{filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"), x509.NewCertPool()}
	s.Roots.AppendCertsFromPEM(certificate)
	return s, errors.Join(os.WriteFile(s.CertFile, certificate, 0o644), os.WriteFile(s.KeyFile, key, 0o600))
}

func selfSigned(life time.Duration, hosts []string) (certPEM, keyPEM []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, nil, err
	}
	end := time.Now().Add(life)
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "tidewire " + serial.Text(36)}, NotBefore: end.Add(-max(life, 0) - 24*time.Hour), NotAfter: end,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IsCA: true, BasicConstraintsValid: true,
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, nil, err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), nil
}
