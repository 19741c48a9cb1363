package auth

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func writeFile(t *testing.T, text []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestReadSecretFile(t *testing.T) {
	t.Parallel()
	k, err := ReadSecretFile(writeFile(t, append(secret, "\r\n"...)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Verify(sign(t, secret, hs256, good()), []Key{k}, config, now); err != nil {
		t.Errorf("the line break counts: %v", err)
	}
	for says, text := range map[string]string{
		"everybody may know": "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n", "at least 32": string(secret[:31]) + "\n", "is empty": " \n", "this is no key": strings.Repeat("x", maxKeyFile+1),
	} {
		if _, err := ReadSecretFile(writeFile(t, []byte(text))); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q", err, says)
		}
	}
	if _, err := ReadSecretFile(filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
}

func TestReadPublicKeyFile(t *testing.T) {
	t.Parallel()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	secretDER, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	block := func(name string, b []byte) []byte { return pem.EncodeToMemory(&pem.Block{Type: name, Bytes: b}) }
	keys, err := ReadPublicKeyFile(writeFile(t, append(block("PUBLIC KEY", der), block("PUBLIC KEY", der)...)))
	if err != nil || len(keys) != 2 {
		t.Fatalf("%d keys, %v", len(keys), err)
	}
	for says, text := range map[string][]byte{
		"private key": block("PRIVATE KEY", secretDER), "want a public key in PEM": []byte("ssh-ed25519 AAAA"), "type \"X\"": block("X", der),
	} {
		if _, err := ReadPublicKeyFile(writeFile(t, text)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q", err, says)
		}
	}
	if _, err := ReadPublicKeyFile(writeFile(t, block("PUBLIC KEY", []byte("x")))); err == nil {
		t.Error("broken DER is a key")
	}
}
