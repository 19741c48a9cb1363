package auth

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

var (
	now    = time.Unix(1_800_000_000, 0)
	secret = []byte("0123456789abcdef0123456789abcdef")
	config = TokenConfig{Issuer: "https://id.example.com", Audience: "tidewire", Leeway: 30 * time.Second}
)

// good are claims that are taken; with changes some.
func good(changes ...any) map[string]any {
	claims := map[string]any{"sub": "u7", "iss": config.Issuer, "aud": "tidewire", "exp": now.Unix() + 60}
	for i := 0; i < len(changes); i += 2 {
		if changes[i+1] == nil {
			delete(claims, changes[i].(string))
			continue
		}
		claims[changes[i].(string)] = changes[i+1]
	}
	return claims
}

// sign makes a token by HS256, whatever its header says.
func sign(t testing.TB, key []byte, header, claims any) string {
	t.Helper()
	input := encode(t, header) + "." + encode(t, claims)
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(input))
	return input + "." + base64URL.EncodeToString(mac.Sum(nil))
}

// encode is a part of a token: a string as it is, anything else as JSON.
func encode(t testing.TB, part any) string {
	t.Helper()
	if text, ok := part.(string); ok {
		return base64URL.EncodeToString([]byte(text))
	}
	b, err := json.Marshal(part)
	if err != nil {
		t.Fatal(err)
	}
	return base64URL.EncodeToString(b)
}

func mustKey(t testing.TB) func(k Key, err error) Key {
	return func(k Key, err error) Key {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
}

var hs256 = map[string]string{"alg": "HS256"}

func TestVerify(t *testing.T) {
	t.Parallel()
	keys := []Key{mustKey(t)(NewSecret("", secret))}
	c, err := Verify(sign(t, secret, hs256, good("role", "worker", "iat", now.Unix(), "team", map[string]any{"id": 12},
		"tidewire", map[string]any{"allow": []string{"read stream:orders"}})), keys, config, now)
	if err != nil {
		t.Fatal(err)
	}
	if c.Subject != "u7" || c.Role != "worker" || !c.Expires.Equal(now.Add(time.Minute)) || !c.Issued.Equal(now) {
		t.Errorf("%+v", c)
	}
	if len(c.Allow) != 1 || c.Allow[0].String() != "read stream:orders" {
		t.Errorf("rights %v", c.Allow)
	}
	for name, want := range map[string]string{"sub": "u7", "claim.team.id": "12", "claim.role": "worker"} {
		if got, ok := c.Value(name); !ok || got != want {
			t.Errorf("%s is %q, %v, want %q", name, got, ok, want)
		}
	}
	for _, name := range []string{"claim.team", "claim.none", "claim.team.none", "claim.aud.x", "role"} {
		if got, ok := c.Value(name); ok {
			t.Errorf("%s is %q", name, got)
		}
	}
}

// TestVerify_Claims: claims that are missing, of another type or out of their range.
func TestVerify_Claims(t *testing.T) {
	t.Parallel()
	keys := []Key{mustKey(t)(NewSecret("", secret))}
	for _, c := range []struct {
		name   string
		claims any
		want   error
	}{
		{"as they should be", good(), nil},
		{"aud of several", good("aud", []string{"x", "tidewire"}), nil},
		{"exp with a fraction", good("exp", float64(now.Unix())+60.5), nil},
		{"expired within the leeway", good("exp", now.Unix()-29), nil},
		{"expired", good("exp", now.Unix()-30), ErrTokenExpired},
		{"no exp", good("exp", nil), ErrInvalidToken},
		{"exp of text", good("exp", "9999999999"), ErrInvalidToken},
		{"exp too large", `{"sub":"u7","iss":"https://id.example.com","aud":"tidewire","exp":1e300}`, ErrInvalidToken},
		{"exp negative", good("exp", -1), ErrInvalidToken},
		{"exp is NaN", `{"sub":"u7","iss":"https://id.example.com","aud":"tidewire","exp":NaN}`, ErrInvalidToken},
		{"exp twice", `{"sub":"u7","iss":"https://id.example.com","aud":"tidewire","exp":1800000060,"exp":9999999999}`, ErrInvalidToken},
		{"sub twice in other case", `{"sub":"u7","Sub":"admin","iss":"https://id.example.com","aud":"tidewire","exp":1800000060}`, ErrInvalidToken},
		{"sub twice by an escape", `{"sub":"u7","s\u0075b":"admin","iss":"https://id.example.com","aud":"tidewire","exp":1800000060}`, ErrInvalidToken},
		{"no sub", good("sub", nil), ErrInvalidToken},
		{"sub empty", good("sub", ""), ErrInvalidToken},
		{"sub of 128 bytes", good("sub", strings.Repeat("x", 128)), nil},
		{"sub of 129 bytes", good("sub", strings.Repeat("x", 129)), ErrInvalidToken},
		{"sub a number", good("sub", 7), ErrInvalidToken},
		{"sub with half a character", `{"sub":"a\ud800","iss":"https://id.example.com","aud":"tidewire","exp":1800000060}`, ErrInvalidToken},
		{"sub with NUL", good("sub", "a\x00"), ErrInvalidToken},
		{"a claim that begins with NUL", good("team", "\x00a"), ErrInvalidToken},
		{"jti of 256 bytes", good("jti", strings.Repeat("x", 256)), nil},
		{"jti of 257 bytes", good("jti", strings.Repeat("x", 257)), ErrInvalidToken},
		{"jti a number", good("jti", 17), nil},
		{"jti a number of 257 digits", good("jti", json.RawMessage(strings.Repeat("9", 257))), ErrInvalidToken},
		{"jti with NUL", good("jti", "a\x00"), ErrInvalidToken},
		{"jti with half a character", withClaim(`"jti":"a\ud800"`), ErrInvalidToken},
		{"jti that is no UTF-8", withClaim("\"jti\":\"a\xff\""), ErrInvalidToken},
		{"no aud", good("aud", nil), ErrInvalidToken},
		{"another aud", good("aud", "tidewire2"), ErrInvalidToken},
		{"aud with a number", good("aud", []any{1, "tidewire"}), ErrInvalidToken},
		{"another iss", good("iss", "https://evil.example.com"), ErrInvalidToken},
		{"no iss", good("iss", nil), ErrInvalidToken},
		{"nbf to come", good("nbf", now.Unix()+31), ErrInvalidToken},
		{"nbf within the leeway", good("nbf", now.Unix()+30), nil},
		{"nbf of text", good("nbf", "1"), ErrInvalidToken},
		{"iat of text", good("iat", "1"), ErrInvalidToken},
		{"iat to come", good("iat", now.Unix()+31), ErrInvalidToken},
		{"role a number", good("role", 1), ErrInvalidToken},
		{"a wrong rule", good("tidewire", map[string]any{"allow": []string{"write stream:a"}}), ErrInvalidToken},
		{"a rule with a placeholder", good("tidewire", map[string]any{"allow": []string{"read stream:{sub}"}}), ErrInvalidToken},
		{"rules of another type", good("tidewire", map[string]any{"allow": "read stream:a"}), ErrInvalidToken},
		{"no object", `["sub"]`, ErrInvalidToken},
		{"something after it", `{"sub":"u7"} {}`, ErrInvalidToken},
	} {
		if _, err := Verify(sign(t, secret, hs256, c.claims), keys, config, now); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
	if _, err := Verify(sign(t, secret, hs256, good()), keys, TokenConfig{}, now); !errors.Is(err, ErrInvalidToken) {
		t.Errorf("without an audience: %v", err)
	}
}

// TestVerify_Headers: the algorithm is the key's, and nothing in a header names a key.
func TestVerify_Headers(t *testing.T) {
	t.Parallel()
	keys := []Key{mustKey(t)(NewSecret("k1", secret))}
	for _, c := range []struct {
		name   string
		header any
		ok     bool
	}{
		{"its kid", map[string]string{"alg": "HS256", "kid": "k1"}, true},
		{"no kid", hs256, false},
		{"another kid", map[string]string{"alg": "HS256", "kid": "../../etc/passwd"}, false},
		{"alg none", map[string]string{"alg": "none", "kid": "k1"}, false},
		{"alg None", map[string]string{"alg": "None", "kid": "k1"}, false},
		{"no alg", map[string]string{"kid": "k1"}, false},
		{"alg a list", map[string]any{"alg": []string{"HS256"}, "kid": "k1"}, false},
		{"two algs", `{"alg":"none","alg":"HS256","kid":"k1"}`, false},
		{"alg in other case", map[string]string{"ALG": "HS256", "kid": "k1"}, false},
		{"crit that is null", `{"alg":"HS256","kid":"k1","crit":null}`, false},
		{"kid a number", map[string]any{"alg": "HS256", "kid": 1}, false},
		{"two algs in other case", `{"alg":"HS256","ALG":"none","kid":"k1"}`, false},
		{"crit", map[string]any{"alg": "HS256", "kid": "k1", "crit": []string{"exp"}}, false},
		{"RS256", map[string]string{"alg": "RS256", "kid": "k1"}, false},
		{"jku", map[string]string{"alg": "HS256", "kid": "k1", "jku": "http://127.0.0.1:1/"}, true}, // which nobody looks at
	} {
		if _, err := Verify(sign(t, secret, c.header, good()), keys, config, now); (err == nil) != c.ok {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// TestVerify_Spellings: a token has one spelling.
func TestVerify_Spellings(t *testing.T) {
	t.Parallel()
	keys := []Key{mustKey(t)(NewSecret("", secret))}
	token := sign(t, secret, hs256, good())
	if _, err := Verify(token, keys, config, now); err != nil {
		t.Fatal(err)
	}
	last := token[len(token)-1]
	for _, c := range []struct{ name, token string }{
		{"padding", token + "="},
		{"a line break", token + "\n"},
		{"a line break inside", token[:9] + "\r\n" + token[9:]},
		{"other last bits", token[:len(token)-1] + string(rune(last+1))},
		{"a fourth part", token + "."},
		{"two parts", token[:strings.LastIndexByte(token, '.')]},
		{"empty", ""},
		{"dots", ".."},
		{"a space", " " + token},
		{"too long", sign(t, secret, hs256, good("team", strings.Repeat("a", MaxToken)))},
	} {
		if _, err := Verify(c.token, keys, config, now); !errors.Is(err, ErrInvalidToken) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// TestVerify_PublicKeys: each kind of key takes its algorithms; a public key is never a secret.
func TestVerify_PublicKeys(t *testing.T) {
	t.Parallel()
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	ecKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	_, edKey, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(&rsaKey.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	asSecret := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	keys := []Key{
		mustKey(t)(NewPublicKey("rsa", &rsaKey.PublicKey)), mustKey(t)(NewPublicKey("ec", &ecKey.PublicKey)),
		mustKey(t)(NewPublicKey("ed", edKey.Public())),
	}
	with := func(alg, kid string, signature func(input []byte) []byte) string {
		input := encode(t, map[string]string{"alg": alg, "kid": kid}) + "." + encode(t, good())
		return input + "." + base64URL.EncodeToString(signature([]byte(input)))
	}
	digest := func(input []byte) []byte { d := sha256.Sum256(input); return d[:] }
	pkcs := func(input []byte) []byte {
		s, err := rsa.SignPKCS1v15(rand.Reader, rsaKey, crypto.SHA256, digest(input))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	pss := func(input []byte) []byte {
		s, err := rsa.SignPSS(rand.Reader, rsaKey, crypto.SHA256, digest(input), &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	ec := func(input []byte) []byte {
		r, s, err := ecdsa.Sign(rand.Reader, ecKey, digest(input))
		if err != nil {
			t.Fatal(err)
		}
		return append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...)
	}
	ed := func(input []byte) []byte { return ed25519.Sign(edKey, input) }
	mac := func(key []byte) func([]byte) []byte {
		return func(input []byte) []byte { m := hmac.New(sha256.New, key); m.Write(input); return m.Sum(nil) }
	}
	for _, c := range []struct {
		name, token string
		ok          bool
	}{
		{"RS256", with("RS256", "rsa", pkcs), true},
		{"PS256", with("PS256", "rsa", pss), true},
		{"ES256", with("ES256", "ec", ec), true},
		{"EdDSA", with("EdDSA", "ed", ed), true},
		{"RS256 said to be PS256", with("PS256", "rsa", pkcs), false},
		{"another's kid", with("ES256", "rsa", ec), false},
		{"HS256 with the public key as the secret", with("HS256", "rsa", mac(asSecret)), false},
		{"HS256 with its DER", with("HS256", "rsa", mac(der)), false},
		{"ES256 of zeros", with("ES256", "ec", func([]byte) []byte { return make([]byte, 64) }), false},
		{"ES256 too short", with("ES256", "ec", func(b []byte) []byte { return ec(b)[:63] }), false},
		{"EdDSA of zeros", with("EdDSA", "ed", func([]byte) []byte { return make([]byte, 64) }), false},
		{"no signature", with("EdDSA", "ed", func([]byte) []byte { return nil }), false},
	} {
		if _, err := Verify(c.token, keys, config, now); (err == nil) != c.ok {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// TestKeys_Weak: keys that are too short to be safe are refused when they are configured.
func TestKeys_Weak(t *testing.T) {
	t.Parallel()
	if _, err := NewSecret("", secret[:31]); err == nil {
		t.Error("a secret of 31 bytes is taken")
	}
	curve, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []any{&curve.PublicKey, ed25519.PublicKey("short"), "text", nil} {
		if _, err := NewPublicKey("", key); err == nil {
			t.Errorf("a key of type %T is taken", key)
		}
	}
	small, err := x509.ParsePKCS1PublicKey(smallRSA(t))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := NewPublicKey("", small); err == nil {
		t.Error("an RSA key of 1,024 bits is taken")
	}
}

// smallRSA is the DER of an RSA key of 1,024 bits, which package rsa does not make any more.
func smallRSA(t *testing.T) []byte {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	public := rsa.PublicKey{N: key.Primes[0], E: key.E} // as long as a key of half the size
	return x509.MarshalPKCS1PublicKey(&public)
}

// FuzzVerify: any text is refused, and nothing panics; one that is signed has the claims that were signed.
func FuzzVerify(f *testing.F) {
	keys := []Key{mustKey(f)(NewSecret("", secret))}
	f.Add(sign(f, secret, hs256, good()), `{"sub":"u7"}`)
	f.Add("a.b.c", `{"sub":"u7","iss":"https://id.example.com","aud":["tidewire"],"exp":1800000060,"tidewire":{"allow":["read stream:a"]}}`)
	f.Fuzz(func(t *testing.T, token, claims string) {
		if token != sign(t, secret, hs256, good()) {
			if c, err := Verify(token, keys, config, now); err == nil {
				t.Fatalf("%q is taken: %+v", token, c)
			}
		}
		c, err := Verify(sign(t, secret, hs256, claims), keys, config, now)
		if err == nil && (!ValidUser(c.Subject) || c.Expires.IsZero() || c.Role == "") {
			t.Fatalf("%q gave %+v", claims, c)
		}
		if err != nil && !errors.Is(err, ErrInvalidToken) && !errors.Is(err, ErrTokenExpired) {
			t.Fatal(fmt.Errorf("%q: %w", claims, err))
		}
	})
}
