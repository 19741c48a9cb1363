package auth

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"sync/atomic"
	"time"
)

const (
	// apiKeyPrefix begins every API key, so that scanners for secrets find it. No JWT begins so.
	apiKeyPrefix = "tw_"
	// keyUserPrefix begins the user of a caller with an API key. No token may have such a sub.
	keyUserPrefix = "key:"
	// keyRole is the role of callers with an API key. No rule of the configuration is theirs.
	keyRole = "key"
	// apiKeyID and apiKeySecret are the lengths of the two parts of a key in bytes: 43 digits of base 62 are 256 bits.
	apiKeyID     = 8
	apiKeySecret = 43
)

// APIKey is what is known of an API key: everything but its secret.
type APIKey struct {
	ID, Name string
	Digest   [sha256.Size]byte // of the secret
	Allow    []Rule            // without placeholders
	Expires  time.Time         // zero: never
}

// NewAPIKey makes a key. It returns the text of the key too, which is kept nowhere. The rules of a key have no placeholders.
func NewAPIKey(name string, allow []string, expires time.Time) (key APIKey, text string, err error) {
	if err := checkKeyName(name, allow); err != nil {
		return key, "", err
	}
	key = APIKey{ID: randomDigits(apiKeyID), Name: name, Expires: expires}
	if key.Allow, err = ParseLiteralRules(allow); err != nil {
		return key, "", err
	}
	secret := randomDigits(apiKeySecret)
	key.Digest = sha256.Sum256([]byte(secret))
	return key, apiKeyPrefix + key.ID + "_" + secret, nil
}

// checkKeyName checks all of a key but its rules.
func checkKeyName(name string, allow []string) error {
	if name == "" || !ValidUser(keyUserPrefix+name) {
		return fmt.Errorf("name of a key: want 1 to %d bytes without control characters", maxSubject-len(keyUserPrefix))
	}
	if IsKeyUser(name) {
		return fmt.Errorf("name of a key: leave out %s: the server adds it", keyUserPrefix)
	}
	if len(allow) == 0 {
		return errors.New("a key without rights can do nothing: want at least one rule")
	}
	return nil
}

// randomDigits returns n random digits of base 62.
func randomDigits(n int) string {
	most := new(big.Int).Exp(big.NewInt(62), big.NewInt(int64(n)), nil)
	number, _ := rand.Int(rand.Reader, most) // it never fails
	digits := number.Text(62)
	return strings.Repeat("0", n-len(digits)) + digits
}

// splitAPIKey returns the parts of a text that has the form of a key.
func splitAPIKey(text string) (id, secret string, ok bool) {
	rest, ok := strings.CutPrefix(text, apiKeyPrefix)
	if !ok || len(rest) != apiKeyID+1+apiKeySecret || rest[apiKeyID] != '_' {
		return "", "", false
	}
	return rest[:apiKeyID], rest[apiKeyID+1:], true
}

// is reports whether the secret is the key's.
func (k *APIKey) is(secret string) bool {
	digest := sha256.Sum256([]byte(secret))
	return subtle.ConstantTimeCompare(digest[:], k.Digest[:]) == 1
}

// User is the user of callers with the key: keys of one name are one user.
func (k *APIKey) User() string { return keyUserPrefix + k.Name }

// IsKeyUser reports whether the user is that of an API key.
func IsKeyUser(user string) bool { return strings.HasPrefix(user, keyUserPrefix) }

// used notes that a key was used now. There are no more entries than keys that were valid since the server began.
func (p *Policy) used(id string) {
	now := p.now().Unix()
	at, ok := p.uses.Load(id)
	if !ok {
		at, _ = p.uses.LoadOrStore(id, new(atomic.Int64))
	}
	at.(*atomic.Int64).Store(now)
}

// LastUse returns when this server has last accepted a key, or the zero time.
func (p *Policy) LastUse(id string) time.Time {
	at, ok := p.uses.Load(id)
	if !ok {
		return time.Time{}
	}
	return time.Unix(at.(*atomic.Int64).Load(), 0)
}

// byAPIKey returns the caller of an API key.
func (p *Policy) byAPIKey(text string) (*Caller, error) {
	id, secret, ok := splitAPIKey(text)
	if !ok {
		return nil, fmt.Errorf("%w: it does not have the form of an API key", ErrInvalidToken)
	}
	var known *knownKey
	if p.cfg.Load().Access != nil {
		known = p.cfg.Load().Access().keys[id]
	}
	switch {
	case known == nil:
		return nil, fmt.Errorf("%w: there is no API key %q, or it was revoked", ErrInvalidToken, id)
	case !known.is(secret):
		return nil, fmt.Errorf("%w: the secret is not that of the API key %s", ErrInvalidToken, id)
	case !known.Expires.IsZero() && !p.now().Before(known.Expires):
		return nil, fmt.Errorf("%w: the API key %s, at %s", ErrTokenExpired, id, known.Expires)
	}
	p.used(id)
	c := &Caller{User: known.User(), Role: keyRole, Kind: ByKey, Expires: known.Expires, keyID: id, grants: known.grants, answers: p.answers}
	if p.answers != nil {
		c.id = sha256.Sum256([]byte(text))
		c.claims, _ = json.Marshal(map[string]string{"sub": c.User, "role": c.Role}) // no value of ours fails
	}
	return c, nil
}
