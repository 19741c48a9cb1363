package auth

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxKeys and maxSet bound what a JWKS address may answer: keys, and bytes.
	maxKeys = 64
	maxSet  = 1 << 20
	// refetchEvery is the least time between two requests, whatever kids tokens name; refreshEvery the time between two of them without any token.
	refetchEvery = time.Minute
	// retryEvery is the least time between two requests while the address does not answer.
	retryEvery   = 5 * time.Second
	refreshEvery = time.Hour
	// keepFor is how long the last good set is used while the address does not answer.
	keepFor = 24 * time.Hour
	// fetchTimeout bounds one request.
	fetchTimeout = 10 * time.Second
)

// KeySet is the set of keys at one JWKS address (RFC 7517), cached. The address is configured, and never from a token: else whoever writes a token could have the
// server call any address. Safe for concurrent use.
type KeySet struct {
	address string
	shown   string // the address as it may be logged
	client  *http.Client
	log     *slog.Logger
	now     func() time.Time
	set     atomic.Pointer[fetched]

	mu     sync.Mutex // guards the fields below
	asking chan struct{}
	tried  time.Time
	failed bool
	unused string // why keys of the last set are not used
}

type fetched struct {
	keys []Key
	at   time.Time
}

// NewKeySet returns the KeySet of an address: https, or http on a loopback address. It asks for nothing before Keys or Prepare.
func NewKeySet(address string, log *slog.Logger) (*KeySet, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, fmt.Errorf("JWKS address: %w", withoutURL(err))
	}
	if u.Scheme != "https" && !(u.Scheme == "http" && IsLoopback(u.Hostname())) || u.Host == "" || u.User != nil {
		return nil, fmt.Errorf("JWKS address %s: want https://…, or http:// on a loopback address, without a password", shown(u))
	}
	client := &http.Client{Timeout: fetchTimeout, CheckRedirect: func(to *http.Request, via []*http.Request) error {
		if to.URL.Host != u.Host || to.URL.Scheme != u.Scheme || len(via) > 3 {
			return fmt.Errorf("redirected to %s: want the same host", shown(to.URL))
		}
		return nil
	}}
	return &KeySet{address: address, shown: shown(u), client: client, log: log, now: time.Now}, nil
}

// shown is an address without what may be secret: its query, fragment, user and password.
func shown(u *url.URL) string {
	return (&url.URL{Scheme: u.Scheme, Opaque: u.Opaque, Host: u.Host, Path: u.Path, RawPath: u.RawPath}).String()
}

// withoutURL is an error of package net/url or net/http without the whole address, which it contains.
func withoutURL(err error) error {
	if of, ok := errors.AsType[*url.Error](err); ok {
		return of.Err
	}
	return err
}

// IsLoopback reports whether a host is this machine, so that nobody else sees what is sent to it.
func IsLoopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}

// ErrNoKeys: the JWKS address has not answered yet, or not for a day.
var ErrNoKeys = errors.New("auth: the keys of the issuer cannot be read now")

// Keys returns the keys for a token that names kid. Keys that are known are returned at once; if they are older than an hour, the address is
// asked meanwhile. If there is no key of that name, Keys asks the address and waits, until ctx ends: at most once a minute, and every 5 s
// while the address does not answer. A key without a name, which may verify any token, makes no difference to that.
func (s *KeySet) Keys(ctx context.Context, kid string) ([]Key, error) {
	set := s.set.Load()
	fresh := set != nil && s.now().Sub(set.at) <= refreshEvery
	if !fresh || !set.has(kid) {
		asked := s.fetch()
		if set == nil || !set.has(kid) || s.now().Sub(set.at) > keepFor {
			select {
			case <-asked:
			case <-ctx.Done():
			}
			set = s.set.Load()
		}
	}
	if set == nil || s.now().Sub(set.at) > keepFor {
		return nil, ErrNoKeys
	}
	return set.keys, nil
}

// Prepare asks the address, so that the first token need not wait.
func (s *KeySet) Prepare() { s.fetch() }

// has reports whether the set has a key of the name kid. One without a name does not count: else no name would ever be unknown.
func (f *fetched) has(kid string) bool {
	return slices.ContainsFunc(f.keys, func(k Key) bool { return k.ID == kid })
}

// fetch asks the address, unless it was asked a moment ago, and returns a channel that is closed when that is done. The callers that come
// meanwhile wait for the same request (singleflight).
func (s *KeySet) fetch() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	every := refetchEvery
	if s.failed {
		every = retryEvery
	}
	if s.asking == nil || isClosed(s.asking) && s.now().Sub(s.tried) >= every {
		s.asking, s.tried = make(chan struct{}), s.now()
		go s.ask(s.asking)
	}
	return s.asking
}

func isClosed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func (s *KeySet) ask(done chan struct{}) {
	defer close(done)
	keys, err := s.get(context.Background())
	if err != nil {
		s.log.Warn("the keys of the issuer were not read; the last ones are used for up to a day", "address", s.shown, "error", err)
	} else {
		s.set.Store(&fetched{keys: keys, at: s.now()})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed = err != nil
}

func (s *KeySet) get(ctx context.Context) ([]Key, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.address, nil)
	if err != nil {
		return nil, withoutURL(err)
	}
	answer, err := s.client.Do(request)
	if err != nil {
		return nil, withoutURL(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("it answers %s", answer.Status)
	}
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxSet+1))
	if err != nil {
		return nil, err
	}
	if len(body) > maxSet {
		return nil, fmt.Errorf("the answer has more than %d bytes", maxSet)
	}
	keys, unused, err := ParseKeySet(body)
	s.logUnused(unused)
	return keys, err
}

// logUnused logs why keys of the set are not used, once for each reason.
func (s *KeySet) logUnused(why error) {
	text := ""
	if why != nil {
		text = strings.ReplaceAll(why.Error(), "\n", "; ")
	}
	s.mu.Lock()
	known := text == s.unused
	s.unused = text
	s.mu.Unlock()
	if text != "" && !known {
		s.log.Warn("keys of the issuer cannot be used; the others are", "address", s.shown, "error", text)
	}
}

// jwk is a key of a set (RFC 7517, 4).
type jwk struct {
	Type       string   `json:"kty"`
	Use        string   `json:"use"`
	Operations []string `json:"key_ops"`
	Algorithm  string   `json:"alg"`
	ID         string   `json:"kid"`
	Curve      string   `json:"crv"`
	N          string   `json:"n"`
	E          string   `json:"e"`
	X          string   `json:"x"`
	Y          string   `json:"y"`
}

// ParseKeySet returns the public keys of a JWKS that can verify signatures, and why others are not used. It passes over keys for
// encryption and of unknown types, as RFC 7517 says; secrets in a set are never used. A set without a key that can be used is an error.
func ParseKeySet(text []byte) (keys []Key, unused, err error) {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(text, &set); err != nil {
		return nil, nil, fmt.Errorf("a JWKS: %w", err)
	}
	if len(set.Keys) > maxKeys {
		return nil, nil, fmt.Errorf("a JWKS of %d keys, want at most %d", len(set.Keys), maxKeys)
	}
	for i, entry := range set.Keys {
		var j jwk
		if err := json.Unmarshal(entry, &j); err != nil {
			unused = errors.Join(unused, fmt.Errorf("key %d of the set: %w", i+1, err))
			continue
		}
		if !j.verifies() {
			continue
		}
		k, err := j.key()
		if err != nil {
			unused = errors.Join(unused, fmt.Errorf("key %q: %w", j.ID, err))
			continue
		}
		keys = append(keys, k)
	}
	if len(keys) == 0 {
		return nil, nil, errors.Join(errors.New("the JWKS has no key that can be used"), unused)
	}
	return keys, unused, nil
}

// verifies reports whether the key is meant for signatures, as far as it says (RFC 7517, 4.2 and 4.3).
func (j jwk) verifies() bool {
	return (j.Use == "" || j.Use == "sig") && (j.Operations == nil || slices.Contains(j.Operations, "verify"))
}

// key returns the key. One that names an algorithm takes that alone.
func (j jwk) key() (Key, error) {
	k, err := j.public()
	if err != nil || j.Algorithm == "" {
		return k, err
	}
	if !slices.Contains(k.algorithms(), j.Algorithm) {
		return Key{}, fmt.Errorf("its alg is %q, want %s", j.Algorithm, strings.Join(k.algorithms(), " or "))
	}
	k.algorithm = j.Algorithm
	return k, nil
}

func (j jwk) public() (Key, error) {
	switch {
	case j.Type == "RSA":
		n, e := number(j.N), number(j.E)
		if n == nil || e == nil || !e.IsInt64() || e.Int64() < 3 || e.Int64() > 1<<31-1 || e.Int64()%2 == 0 || n.BitLen() > 16384 {
			return Key{}, errors.New("n or e is wrong")
		}
		return NewPublicKey(j.ID, &rsa.PublicKey{N: n, E: int(e.Int64())})
	case j.Type == "EC" && j.Curve == "P-256":
		x, y := bytesOf(j.X), bytesOf(j.Y)
		if len(x) != 32 || len(y) != 32 {
			return Key{}, errors.New("x or y has the wrong size")
		}
		public, err := ecdsa.ParseUncompressedPublicKey(elliptic.P256(), append(append([]byte{4}, x...), y...))
		if err != nil {
			return Key{}, errors.New("x and y are no point of the curve")
		}
		return NewPublicKey(j.ID, public)
	case j.Type == "OKP" && j.Curve == "Ed25519":
		return NewPublicKey(j.ID, ed25519.PublicKey(bytesOf(j.X)))
	}
	return Key{}, fmt.Errorf("type %q %q is not supported", j.Type, j.Curve)
}

// bytesOf decodes base64url, which some issuers pad; nil if it is none.
func bytesOf(text string) []byte {
	for len(text) > 0 && text[len(text)-1] == '=' {
		text = text[:len(text)-1]
	}
	b, err := base64URL.DecodeString(text)
	if err != nil {
		return nil
	}
	return b
}

func number(text string) *big.Int {
	b := bytesOf(text)
	if len(b) == 0 {
		return nil
	}
	return new(big.Int).SetBytes(b)
}
