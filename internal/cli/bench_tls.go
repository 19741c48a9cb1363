package cli

import (
	"crypto/tls"
	"os"
	"time"

	"github.com/tidewire/tidewire/internal/certs"
)

// tlsBenchFlags measure a server with TLS.
type tlsBenchFlags struct {
	TLS bool `name:"tls" help:"Measure Tidewire with TLS: the server gets a certificate made for the run."`
}

// certified is the certificate of a run: flags of serve, and what its clients trust. Without --tls both are empty.
type certified struct {
	args   []string
	config *tls.Config
	dir    string
}

// certify makes a certificate for the run, if --tls asks for one. Call remove at the end.
func (f tlsBenchFlags) certify() (*certified, error) {
	if !f.TLS {
		return &certified{}, nil
	}
	dir, err := os.MkdirTemp("", "tidewire-tls-")
	if err != nil {
		return nil, err
	}
	made, err := certs.MakeSelfSigned(dir, 30*24*time.Hour, "localhost", "127.0.0.1")
	if err != nil {
		os.RemoveAll(dir)
		return nil, err
	}
	return &certified{[]string{"--tls-cert-file", made.CertFile, "--tls-key-file", made.KeyFile}, &tls.Config{RootCAs: made.Roots}, dir}, nil
}

func (c *certified) remove() {
	if c.dir != "" {
		os.RemoveAll(c.dir)
	}
}
