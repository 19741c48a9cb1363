package auth

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// issuer is a server at a JWKS address.
type issuer struct {
	*httptest.Server
	asked  atomic.Int64
	mu     sync.Mutex
	status int
	body   string
}

func newIssuer(t *testing.T, body string) *issuer {
	t.Helper()
	i := &issuer{status: http.StatusOK, body: body}
	i.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		i.asked.Add(1)
		i.mu.Lock()
		defer i.mu.Unlock()
		if i.status == http.StatusFound {
			w.Header().Set("Location", i.body)
		}
		w.WriteHeader(i.status)
		fmt.Fprint(w, i.body)
	}))
	t.Cleanup(i.Close)
	return i
}

func (i *issuer) answers(status int, body string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.status, i.body = status, body
}

// keySetAt returns a KeySet whose clock the test moves.
func keySetAt(t *testing.T, address string) (*KeySet, func(time.Duration)) {
	t.Helper()
	s, err := NewKeySet(address, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	clock := now
	s.now = func() time.Time { mu.Lock(); defer mu.Unlock(); return clock }
	return s, func(d time.Duration) { mu.Lock(); defer mu.Unlock(); clock = clock.Add(d) }
}

// setOf is a JWKS of Ed25519 keys with these names.
func setOf(t *testing.T, ids ...string) string {
	t.Helper()
	var keys []any
	for _, id := range ids {
		public, _, err := ed25519.GenerateKey(rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, map[string]string{"kty": "OKP", "crv": "Ed25519", "kid": id, "x": base64URL.EncodeToString(public)})
	}
	b, err := json.Marshal(map[string]any{"keys": keys})
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func hasKey(keys []Key, id string) bool {
	for _, k := range keys {
		if k.ID == id {
			return true
		}
	}
	return false
}

func TestKeySet_Fetch(t *testing.T) {
	t.Parallel()
	i := newIssuer(t, setOf(t, "a"))
	s, pass := keySetAt(t, i.URL)
	if i.asked.Load() > 0 {
		t.Error("it was asked before it was needed")
	}
	keys := func(kid string) []Key {
		t.Helper()
		got, err := s.Keys(t.Context(), kid)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	if !hasKey(keys("a"), "a") || i.asked.Load() != 1 {
		t.Fatalf("asked %d times", i.asked.Load())
	}
	i.answers(http.StatusOK, setOf(t, "a", "b"))
	var many sync.WaitGroup
	for n := range 1000 { // which invent names
		many.Go(func() { s.Keys(t.Context(), fmt.Sprint("../", n)) })
	}
	many.Wait()
	if i.asked.Load() != 1 {
		t.Errorf("asked %d times within a minute, want once", i.asked.Load())
	}
	pass(refetchEvery)
	if !hasKey(keys("b"), "b") || i.asked.Load() != 2 {
		t.Errorf("a new key was not read after a minute; asked %d times", i.asked.Load())
	}
	i.answers(http.StatusInternalServerError, "down")
	pass(refreshEvery + time.Second)
	known := hasKey(keys("a"), "a")
	<-s.fetch() // the request that this has begun
	if !known || i.asked.Load() != 3 {
		t.Errorf("the last good set is not used while the address is down; asked %d times", i.asked.Load())
	}
	pass(keepFor)
	if _, err := s.Keys(t.Context(), "a"); !errors.Is(err, ErrNoKeys) {
		t.Errorf("after a day without an answer: %v", err)
	}
	i.answers(http.StatusOK, setOf(t, "c"))
	pass(refetchEvery)
	if got := keys("c"); !hasKey(got, "c") || hasKey(got, "a") {
		t.Error("a key that the issuer has withdrawn is still there")
	}
}

// TestKeySet_KeyWithoutName: a set is read again for an unknown name also if one of its keys has none.
func TestKeySet_KeyWithoutName(t *testing.T) {
	t.Parallel()
	i := newIssuer(t, setOf(t, "", "a"))
	s, pass := keySetAt(t, i.URL)
	if keys, err := s.Keys(t.Context(), "a"); err != nil || !hasKey(keys, "a") {
		t.Fatal(err)
	}
	i.answers(http.StatusOK, setOf(t, "", "a", "b"))
	pass(refetchEvery)
	for _, kid := range []string{"a", ""} {
		if _, err := s.Keys(t.Context(), kid); err != nil || i.asked.Load() != 1 {
			t.Errorf("%q, which is known: asked %d times, %v", kid, i.asked.Load(), err)
		}
	}
	if keys, err := s.Keys(t.Context(), "b"); err != nil || !hasKey(keys, "b") {
		t.Errorf("the new key was not read: asked %d times, %v", i.asked.Load(), err)
	}
	if keys, err := s.Keys(t.Context(), "c"); err != nil || !hasKey(keys, "") || i.asked.Load() != 2 {
		t.Errorf("an unknown name: asked %d times, %v", i.asked.Load(), err)
	}
}

// TestKeySet_LogWithoutQuery: the query of the address, which may have a key of its own, is in no error and not in the log.
func TestKeySet_LogWithoutQuery(t *testing.T) {
	t.Parallel()
	const word = "hunter2"
	down := httptest.NewServer(http.NotFoundHandler())
	down.Close()
	missing, elsewhere := newIssuer(t, ""), newIssuer(t, "")
	missing.answers(http.StatusNotFound, "")
	elsewhere.answers(http.StatusFound, "http://example.com/?key="+word)
	for _, address := range []string{down.URL, missing.URL, elsewhere.URL} {
		var log bytes.Buffer // written before Keys returns
		s, err := NewKeySet(address+"/jwks?key="+word, slog.New(slog.NewTextHandler(&log, nil)))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Keys(t.Context(), "a"); !errors.Is(err, ErrNoKeys) || strings.Contains(err.Error(), word) {
			t.Errorf("%s: %v", address, err)
		}
		if text := log.String(); strings.Contains(text, word) || !strings.Contains(text, address+"/jwks") {
			t.Errorf("log: %s", text)
		}
	}
	for _, address := range []string{"ftp://localhost/?key=" + word, "https://ann:" + word + "@example.com/#" + word, "https://example.com/%zz?key=" + word} {
		if _, err := NewKeySet(address, nil); err == nil || strings.Contains(err.Error(), word) {
			t.Errorf("%v", err)
		}
	}
}

// TestKeySet_HangingAddress: keys that are known do not wait for an address that hangs, and unknown ones no longer than their callers.
func TestKeySet_HangingAddress(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	var hangs atomic.Bool
	body := setOf(t, "a")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if hangs.Load() {
			<-release
		}
		fmt.Fprint(w, body)
	}))
	defer server.Close()
	defer close(release)
	s, pass := keySetAt(t, server.URL)
	if _, err := s.Keys(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	hangs.Store(true)
	pass(refreshEvery + time.Second)
	if keys, err := s.Keys(t.Context(), "a"); err != nil || !hasKey(keys, "a") {
		t.Errorf("a known key: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if keys, err := s.Keys(ctx, "b"); err != nil || hasKey(keys, "b") {
		t.Errorf("an unknown key: %v", err)
	}
}

// TestKeySet_Answers: whatever the address answers, no key is invented.
func TestKeySet_Answers(t *testing.T) {
	t.Parallel()
	elsewhere := newIssuer(t, setOf(t, "a"))
	for name, answer := range map[string]struct {
		status int
		body   string
	}{
		"not found":   {http.StatusNotFound, setOf(t, "a")},
		"no JSON":     {http.StatusOK, "<html>"},
		"empty":       {http.StatusOK, ""},
		"no keys":     {http.StatusOK, `{"keys":[]}`},
		"too large":   {http.StatusOK, setOf(t, "a") + strings.Repeat(" ", maxSet)},
		"too many":    {http.StatusOK, setOf(t, strings.Split(strings.Repeat("k,", maxKeys), ",")...)},
		"elsewhere":   {http.StatusFound, strings.Replace(elsewhere.URL, "127.0.0.1", "localhost", 1)},
		"a secret":    {http.StatusOK, `{"keys":[{"kty":"oct","k":"MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY","kid":"a"}]}`},
		"encryption":  {http.StatusOK, strings.Replace(setOf(t, "a"), `"kid"`, `"use":"enc","kid"`, 1)},
		"small RSA":   {http.StatusOK, `{"keys":[{"kty":"RSA","kid":"a","n":"` + base64URL.EncodeToString(make([]byte, 128)) + `","e":"AQAB"}]}`},
		"no point":    {http.StatusOK, `{"keys":[{"kty":"EC","crv":"P-256","kid":"a","x":"` + base64URL.EncodeToString(make([]byte, 32)) + `","y":"` + base64URL.EncodeToString(make([]byte, 32)) + `"}]}`},
		"short point": {http.StatusOK, `{"keys":[{"kty":"EC","crv":"P-256","kid":"a","x":"AA","y":"AA"}]}`},
		"short key":   {http.StatusOK, `{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"a","x":"AA"}]}`},
	} {
		i := newIssuer(t, "")
		i.answers(answer.status, answer.body)
		s, _ := keySetAt(t, i.URL)
		if keys, err := s.Keys(t.Context(), "a"); !errors.Is(err, ErrNoKeys) {
			t.Errorf("%s: %d keys, %v", name, len(keys), err)
		}
		if i.asked.Load() != 1 {
			t.Errorf("%s: asked %d times", name, i.asked.Load())
		}
	}
	largest := setOf(t, "a")
	i := newIssuer(t, largest+strings.Repeat(" ", maxSet-len(largest)))
	s, _ := keySetAt(t, i.URL)
	if keys, err := s.Keys(t.Context(), "a"); err != nil || !hasKey(keys, "a") {
		t.Errorf("as large as it may be: %v", err)
	}
	if elsewhere.asked.Load() > 0 {
		t.Error("a redirect to another host was followed")
	}
}

func TestParseKeySet(t *testing.T) {
	t.Parallel()
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	ecKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	point, err := ecKey.PublicKey.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf(`{"keys":[{"kty":"RSA","kid":"r","n":%q,"e":"AQAB","alg":"RS256"},{"kty":"EC","crv":"P-256","kid":"e","x":%q,"y":%q},{"kty":"EC","crv":"P-521","kid":"?"}]}`,
		base64URL.EncodeToString(rsaKey.N.Bytes())+"==", base64URL.EncodeToString(point[1:33]), base64URL.EncodeToString(point[33:]))
	keys, _, err := ParseKeySet([]byte(text))
	if err != nil || len(keys) != 2 || !hasKey(keys, "r") || !hasKey(keys, "e") {
		t.Fatalf("%d keys, %v", len(keys), err)
	}
	if !rsaKey.PublicKey.Equal(keys[0].public) || !ecKey.PublicKey.Equal(keys[1].public) {
		t.Error("another key than was given")
	}
	if number("AQAB").Cmp(big.NewInt(65537)) != 0 {
		t.Error("e is read wrongly")
	}
}

// TestParseKeySet_Entries: each key is taken for what it says, and one that cannot be used does not cost the others.
func TestParseKeySet_Entries(t *testing.T) {
	t.Parallel()
	public, _, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	ed, n := base64URL.EncodeToString(public), base64URL.EncodeToString(rsaKey.N.Bytes())
	const good = `{"kty":"OKP","crv":"Ed25519","kid":"good","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}`
	for entry, want := range map[string]bool{
		`{"kty":"OKP","crv":"Ed25519","kid":"k","x":"` + ed + `"}`:                                                true,
		`{"kty":"OKP","crv":"Ed25519","kid":"k","use":"sig","key_ops":["verify"],"alg":"EdDSA","x":"` + ed + `"}`: true,
		`{"kty":"OKP","crv":"Ed25519","kid":"k","use":"enc","x":"` + ed + `"}`:                                    false,
		`{"kty":"OKP","crv":"Ed25519","kid":"k","key_ops":["encrypt"],"x":"` + ed + `"}`:                          false,
		`{"kty":"OKP","crv":"Ed25519","kid":"k","alg":"ECDH-ES","x":"` + ed + `"}`:                                false,
		`{"kty":"RSA","kid":"k","alg":"RSA-OAEP","e":"AQAB","n":"` + n + `"}`:                                     false,
		`{"kty":"RSA","kid":"k","alg":"PS256","e":"AQAB","n":"` + n + `"}`:                                        true,
		`{"kty":5}`: false, `"k"`: false, `null`: false, `{"kty":"RSA","kid":"k","e":[]}`: false,
	} {
		keys, _, err := ParseKeySet([]byte(`{"keys":[` + entry + `,` + good + `]}`))
		if err != nil || !hasKey(keys, "good") || hasKey(keys, "k") != want {
			t.Errorf("%s: %d keys, %v", entry, len(keys), err)
		}
	}
	if _, _, err := ParseKeySet([]byte(`{"keys":[{"kty":5}]}`)); err == nil {
		t.Error("a set without keys")
	}
	keys, _, err := ParseKeySet([]byte(`{"keys":[{"kty":"RSA","alg":"PS256","e":"AQAB","n":"` + n + `"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	digest := sha256.Sum256([]byte("text"))
	signature, err := rsa.SignPKCS1v15(rand.Reader, rsaKey, crypto.SHA256, digest[:])
	if err != nil {
		t.Fatal(err)
	}
	if keys[0].verifies(signed{header: header{Algorithm: "RS256"}, input: []byte("text"), signature: signature}) {
		t.Error("a key for PS256 verifies RS256")
	}
}

// TestNewPublicKey_SmallOrder: a signature that is valid for any message has no key.
func TestNewPublicKey_SmallOrder(t *testing.T) {
	t.Parallel()
	for _, text := range []string{ // the canonical encodings of the eight points, and others of the same
		"0100000000000000000000000000000000000000000000000000000000000000", "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
		"0000000000000000000000000000000000000000000000000000000000000000", "0000000000000000000000000000000000000000000000000000000000000080",
		"c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a", "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa",
		"26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05", "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc85",
		"0100000000000000000000000000000000000000000000000000000000000080", "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
		"edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f", "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
	} {
		key, err := hex.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := NewPublicKey("", ed25519.PublicKey(key)); err == nil {
			t.Errorf("%s is taken", text)
		}
	}
	for range 50 {
		public, _, err := ed25519.GenerateKey(rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := NewPublicKey("", public); err != nil {
			t.Errorf("%x: %v", public, err)
		}
	}
}

func TestNewKeySet_Addresses(t *testing.T) {
	t.Parallel()
	for address, ok := range map[string]bool{
		"https://id.example.com/jwks": true, "http://localhost:1/jwks": true, "http://127.0.0.1/jwks": true, "http://[::1]/jwks": true,
		"http://id.example.com/jwks": false, "ftp://localhost/": false, "file:///etc/passwd": false, "jwks": false, "": false, "https://": false,
		"https://user:word@id.example.com/": false, "http://127.0.0.1.example.com/": false,
	} {
		if _, err := NewKeySet(address, nil); (err == nil) != ok {
			t.Errorf("%q: %v", address, err)
		}
	}
}

func FuzzParseKeySet(f *testing.F) {
	f.Add([]byte(`{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"a","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}`))
	f.Add([]byte(`{"keys":[{"kty":"RSA","n":"AQAB","e":"AQAB"}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		keys, _, err := ParseKeySet(text)
		if err != nil {
			return
		}
		for _, k := range keys {
			k.verifies(signed{header: header{Algorithm: k.algorithms()[0]}, input: text, signature: make([]byte, 64)})
		}
	})
}
