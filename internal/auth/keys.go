package auth

import (
	"bytes"
	"crypto"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
)

// maxKeyFile is the largest file of a key in bytes.
const maxKeyFile = 64 << 10

// ReadSecretFile reads a secret for HS256: the bytes of the file, without line breaks at its end.
func ReadSecretFile(path string) (Key, error) {
	text, err := readKeyFile(path)
	if err != nil {
		return Key{}, err
	}
	if bytes.HasPrefix(bytes.TrimSpace(text), []byte("-----BEGIN ")) {
		return Key{}, fmt.Errorf("%s: this is a key in PEM, and not a secret: everybody may know a public key", path)
	}
	k, err := NewSecret("", bytes.TrimRight(text, "\r\n"))
	if err != nil {
		return Key{}, fmt.Errorf("%s: %w; make one with: openssl rand -base64 48", path, err)
	}
	return k, nil
}

// ReadPublicKeyFile reads one or several public keys, or certificates, in PEM.
func ReadPublicKeyFile(path string) ([]Key, error) {
	text, err := readKeyFile(path)
	if err != nil {
		return nil, err
	}
	var keys []Key
	for rest := text; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		public, err := parsePublic(block)
		if err == nil {
			var k Key
			k, err = NewPublicKey("", public)
			keys = append(keys, k)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("%s: want a public key in PEM, which begins with -----BEGIN PUBLIC KEY-----", path)
	}
	return keys, nil
}

func parsePublic(block *pem.Block) (crypto.PublicKey, error) {
	switch block.Type {
	case "PUBLIC KEY":
		return x509.ParsePKIXPublicKey(block.Bytes)
	case "RSA PUBLIC KEY":
		key, err := x509.ParsePKCS1PublicKey(block.Bytes)
		return (*rsa.PublicKey)(key), err
	case "CERTIFICATE":
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		return cert.PublicKey, nil
	case "PRIVATE KEY", "RSA PRIVATE KEY", "EC PRIVATE KEY":
		return nil, errors.New("this is a private key, which belongs to the issuer of tokens alone: want its public key (openssl pkey -in FILE -pubout)")
	}
	return nil, fmt.Errorf("a block of type %q: want PUBLIC KEY or CERTIFICATE", block.Type)
}

func readKeyFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxKeyFile+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", path, err)
	case len(text) > maxKeyFile:
		return nil, fmt.Errorf("%s: more than %d bytes: this is no key", path, maxKeyFile)
	case len(bytes.TrimSpace(text)) == 0:
		return nil, fmt.Errorf("%s: the file is empty", path)
	}
	return text, nil
}
