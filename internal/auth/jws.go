package auth

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"
)

// MaxToken is the longest token in bytes.
const MaxToken = 8 << 10

// minSecret is the shortest secret in bytes, the size of the digest (RFC 7518, 3.2); minRSA the smallest RSA key in bits (3.3).
const (
	minSecret = 32
	minRSA    = 2048
)

// base64URL is base64url without padding, in which each text has one spelling.
var base64URL = base64.RawURLEncoding.Strict()

// header is the JOSE header of a token (RFC 7515, 4). Every field that is not here is ignored, above all those that name a key or an address (jku, jwk, x5u, x5c).
type header struct {
	Algorithm string
	KeyID     string
}

// signed is a token in the compact serialisation, split and decoded, and not verified.
type signed struct {
	header    header
	payload   []byte
	input     []byte // what the signature is of
	signature []byte
}

// split decodes the three parts of a token.
func split(token string) (signed, error) {
	if len(token) > MaxToken {
		return signed{}, fmt.Errorf("%d bytes, want at most %d", len(token), MaxToken)
	}
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return signed{}, fmt.Errorf("%d parts, want three", len(parts))
	}
	var decoded [3][]byte
	for i, p := range parts {
		b, err := base64URL.DecodeString(p)
		if err != nil || strings.ContainsAny(p, "\r\n") { // which package base64 passes over
			return signed{}, fmt.Errorf("part %d is not base64url without padding", i+1)
		}
		decoded[i] = b
	}
	s := signed{payload: decoded[1], signature: decoded[2], input: []byte(token[:len(parts[0])+1+len(parts[1])])}
	fields, err := splitObject(decoded[0], maxHeaderFields) // names are exact: package json takes ALG for alg
	if err != nil {
		return signed{}, fmt.Errorf("header: %w", err)
	}
	if _, has := fields["crit"]; has {
		return signed{}, errors.New("header: crit is not supported")
	}
	var ok bool
	if s.header.Algorithm, ok = textOf(fields["alg"]); !ok {
		return signed{}, errors.New("header: want alg, a string")
	}
	if kid, has := fields["kid"]; has {
		if s.header.KeyID, ok = textOf(kid); !ok {
			return signed{}, errors.New("header: kid: want a string")
		}
	}
	return s, nil
}

// textOf is a JSON string, or false if it is anything else.
func textOf(value json.RawMessage) (text string, ok bool) {
	var decoded *string // null is no string
	if value == nil || json.Unmarshal(value, &decoded) != nil || decoded == nil {
		return "", false
	}
	return *decoded, true
}

// Key verifies signatures. Which algorithms it takes follows from the key alone, never from a token.
type Key struct {
	ID     string // kid; "" matches tokens with any
	secret []byte
	public crypto.PublicKey
	// algorithm is the only one that the key takes. Defaults to all of its kind.
	algorithm string
}

// NewSecret returns a key for HS256.
func NewSecret(id string, secret []byte) (Key, error) {
	if len(secret) < minSecret {
		return Key{}, fmt.Errorf("the secret has %d bytes, want at least %d", len(secret), minSecret)
	}
	return Key{ID: id, secret: slices.Clone(secret)}, nil
}

// NewPublicKey returns a key for RS256 and PS256 (RSA), ES256 (P-256) or EdDSA (Ed25519).
func NewPublicKey(id string, key crypto.PublicKey) (Key, error) {
	switch k := key.(type) {
	case *rsa.PublicKey:
		if k.N.BitLen() < minRSA {
			return Key{}, fmt.Errorf("the RSA key has %d bits, want at least %d", k.N.BitLen(), minRSA)
		}
	case *ecdsa.PublicKey:
		if k.Curve != elliptic.P256() {
			return Key{}, fmt.Errorf("the key is on the curve %s, want P-256", k.Curve.Params().Name)
		}
	case ed25519.PublicKey:
		if len(k) != ed25519.PublicKeySize {
			return Key{}, errors.New("the Ed25519 key has the wrong size")
		}
		if smallOrder(k) {
			return Key{}, errors.New("the Ed25519 key is a point of small order: anybody can sign for it")
		}
	default:
		return Key{}, fmt.Errorf("a key of type %T: want RSA, P-256 or Ed25519", key)
	}
	return Key{ID: id, public: key}, nil
}

// smallOrder reports whether an Ed25519 key is one of the eight points whose order divides eight, in any encoding that package
// ed25519 takes: the y of such a point is 0, 1, -1, or one of two others, and y may be written as y + p too. For such a key, a
// signature of one message is valid for others.
func smallOrder(key ed25519.PublicKey) bool {
	y := make([]byte, len(key))
	for i, b := range key { // little-endian
		y[len(key)-1-i] = b
	}
	y[0] &= 0x7f // the sign of x
	p := new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), 255), big.NewInt(19))
	n := new(big.Int).SetBytes(y)
	n.Mod(n, p)
	for range 3 { // doubled three times, a point of small order is the neutral one, whose y is 1
		if n = doubled(n, p); n == nil {
			return false
		}
	}
	return n.Cmp(big.NewInt(1)) == 0
}

// doubled returns the y of twice a point of Ed25519 with that y, or nil if there is none. With -x² + y² = 1 + d·x²·y², the y of the
// double is (y² + x²) / (1 - d·x²·y²), where x² = (y² - 1) / (d·y² + 1).
func doubled(y, p *big.Int) *big.Int {
	mod := func(n *big.Int) *big.Int { return n.Mod(n, p) }
	inverse := func(n *big.Int) *big.Int { return new(big.Int).ModInverse(mod(n), p) }
	one := big.NewInt(1)
	d := mod(new(big.Int).Mul(big.NewInt(-121665), inverse(big.NewInt(121666))))
	yy := mod(new(big.Int).Mul(y, y))
	under := inverse(new(big.Int).Add(new(big.Int).Mul(d, yy), one))
	if under == nil {
		return nil
	}
	xx := mod(new(big.Int).Mul(new(big.Int).Sub(yy, one), under))
	product := mod(new(big.Int).Mul(d, new(big.Int).Mul(xx, yy)))
	if under = inverse(new(big.Int).Sub(one, product)); under == nil {
		return nil
	}
	return mod(new(big.Int).Mul(new(big.Int).Add(yy, xx), under))
}

// algorithms are those that the key takes.
func (k Key) algorithms() []string {
	if k.algorithm != "" {
		return []string{k.algorithm}
	}
	switch k.public.(type) {
	case *rsa.PublicKey:
		return []string{"RS256", "PS256"}
	case *ecdsa.PublicKey:
		return []string{"ES256"}
	case ed25519.PublicKey:
		return []string{"EdDSA"}
	}
	return []string{"HS256"}
}

// verifies reports whether the key has made the signature, by the algorithm of the header if the key takes that.
func (k Key) verifies(s signed) bool {
	if !slices.Contains(k.algorithms(), s.header.Algorithm) {
		return false
	}
	digest := sha256.Sum256(s.input)
	switch public := k.public.(type) {
	case *rsa.PublicKey:
		if s.header.Algorithm == "PS256" {
			return rsa.VerifyPSS(public, crypto.SHA256, digest[:], s.signature, &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash}) == nil
		}
		return rsa.VerifyPKCS1v15(public, crypto.SHA256, digest[:], s.signature) == nil
	case *ecdsa.PublicKey:
		if len(s.signature) != 64 { // two numbers of 32 bytes (RFC 7518, 3.4)
			return false
		}
		return ecdsa.Verify(public, digest[:], new(big.Int).SetBytes(s.signature[:32]), new(big.Int).SetBytes(s.signature[32:]))
	case ed25519.PublicKey:
		return ed25519.Verify(public, s.input, s.signature)
	}
	mac := hmac.New(sha256.New, k.secret)
	mac.Write(s.input)
	return hmac.Equal(mac.Sum(nil), s.signature)
}
