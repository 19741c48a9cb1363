package auth

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Reasons why a token is not taken. Callers tell clients these alone; the text of the error they wrap is for the log.
var (
	// ErrInvalidToken: the token is malformed, or not signed by a known key, or not for this server.
	ErrInvalidToken = errors.New("auth: invalid token")
	// ErrTokenExpired: the token is right but for its time.
	ErrTokenExpired = errors.New("auth: token expired")
)

// maxSubject is the longest sub in bytes: it is the name of a user in rooms.
const maxSubject = 128

// MaxTokenID is the longest jti in bytes: of a token, and of a revocation.
const MaxTokenID = 256

// latestTime is the last second of the year 9999, in Unix time.
const latestTime = 253402300799

// TokenConfig says which tokens are taken. The zero value takes none.
type TokenConfig struct {
	// Issuer is what iss has to be. Empty: iss is not looked at.
	Issuer string
	// Audience is what aud has to be, or to contain. A token without aud is not taken.
	Audience string
	// RoleClaim is the path of the claim that is the role, with dots between its names. Defaults to "role".
	RoleClaim string
	// Leeway is how far the clocks of the issuer and of this server may differ.
	Leeway time.Duration
}

// Claims are what a verified token says.
type Claims struct {
	ID      string // jti, "" if the token has none; a revocation can name it
	Subject string
	Role    string // "user" if the token has none
	Issued  time.Time
	Expires time.Time
	Allow   []Rule // rights that the token itself brings
	all     map[string]any
}

// Value returns what a placeholder of a rule stands for: "sub", or "claim." and the path of a claim that is a string or a whole number.
func (c *Claims) Value(name string) (string, bool) {
	if name == "sub" {
		return c.Subject, true
	}
	path, ok := strings.CutPrefix(name, "claim.")
	if !ok {
		return "", false
	}
	switch v := claimAt(c.all, path).(type) {
	case string:
		return v, true
	case json.Number:
		if _, err := strconv.ParseInt(v.String(), 10, 64); err == nil {
			return v.String(), true
		}
	}
	return "", false
}

func claimAt(claims map[string]any, path string) any {
	var at any = claims
	for step := range strings.SplitSeq(path, ".") {
		inner, ok := at.(map[string]any)
		if !ok {
			return nil
		}
		at = inner[step]
	}
	return at
}

// Verify verifies a token with the keys that may have signed it.
func Verify(token string, keys []Key, cfg TokenConfig, now time.Time) (*Claims, error) {
	s, err := split(token)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalidToken, err)
	}
	signedBy := func(k Key) bool { return (k.ID == "" || k.ID == s.header.KeyID) && k.verifies(s) }
	if !slices.ContainsFunc(keys, signedBy) {
		return nil, fmt.Errorf("%w: no key has signed it", ErrInvalidToken)
	}
	all, err := decodeClaims(s.payload)
	if err != nil {
		return nil, fmt.Errorf("%w: claims: %w", ErrInvalidToken, err)
	}
	c, err := claimsOf(all, cfg)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalidToken, err)
	}
	return c, c.checkTime(now, cfg.Leeway)
}

func (c *Claims) checkTime(now time.Time, leeway time.Duration) error {
	notBefore, has, _ := timeOf(c.all, "nbf")
	switch {
	case has && now.Add(leeway).Before(notBefore):
		return fmt.Errorf("%w: it begins at %s", ErrInvalidToken, notBefore)
	case !c.Issued.IsZero() && now.Add(leeway).Before(c.Issued):
		return fmt.Errorf("%w: it was issued at %s, which is still to come", ErrInvalidToken, c.Issued)
	case !now.Add(-leeway).Before(c.Expires):
		return fmt.Errorf("%w at %s", ErrTokenExpired, c.Expires)
	}
	return nil
}

// claimsOf checks everything but the times.
func claimsOf(all map[string]any, cfg TokenConfig) (*Claims, error) {
	c := &Claims{all: all}
	if err := errors.Join(c.identify(all, cfg), c.dates(all), c.rights(all)); err != nil {
		return nil, err
	}
	return c, nil
}

func (c *Claims) identify(all map[string]any, cfg TokenConfig) error {
	var ok bool
	if c.Subject, ok = all["sub"].(string); !ok || !ValidUser(c.Subject) {
		return fmt.Errorf("sub: want a string of 1 to %d bytes without control characters", maxSubject)
	}
	if IsKeyUser(c.Subject) {
		return fmt.Errorf("sub begins with %s: such users are API keys", keyUserPrefix)
	}
	switch id := all["jti"].(type) {
	case nil:
	case string:
		c.ID = id
	case json.Number: // some issuers count
		c.ID = id.String()
	default:
		return errors.New("jti: want a string")
	}
	if len(c.ID) > MaxTokenID || strings.ContainsRune(c.ID, utf8.RuneError) {
		return fmt.Errorf("jti: want at most %d bytes of UTF-8, so that the token can be revoked", MaxTokenID)
	}
	if iss, _ := all["iss"].(string); cfg.Issuer != "" && iss != cfg.Issuer {
		return fmt.Errorf("iss is %q, want %q", iss, cfg.Issuer)
	}
	if cfg.Audience == "" || !slices.Contains(audience(all["aud"]), cfg.Audience) {
		return fmt.Errorf("aud does not contain %q", cfg.Audience)
	}
	var err error
	c.Role, err = roleOf(all, cfg)
	return err
}

func (c TokenConfig) roleClaim() string {
	if c.RoleClaim == "" {
		return "role"
	}
	return c.RoleClaim
}

// roleOf is the role that claims name, "user" if they name none.
func roleOf(all map[string]any, cfg TokenConfig) (string, error) {
	path := cfg.roleClaim()
	claim := claimAt(all, path)
	if claim == nil {
		return "user", nil
	}
	role, ok := claim.(string)
	if !ok || role == "" {
		return "", fmt.Errorf("%s: want a string", path)
	}
	return role, nil
}

// ValidUser reports whether a user may have this name, which is the sub of its tokens.
func ValidUser(sub string) bool {
	return sub != "" && len(sub) <= maxSubject && utf8.ValidString(sub) && !strings.ContainsFunc(sub, unicode.IsControl) &&
		!strings.ContainsRune(sub, utf8.RuneError) // for which package json takes what is no character
}

// audience is aud, a string or a list of strings.
func audience(aud any) []string {
	switch v := aud.(type) {
	case string:
		return []string{v}
	case []any:
		var names []string
		for _, a := range v {
			name, ok := a.(string)
			if !ok {
				return nil
			}
			names = append(names, name)
		}
		return names
	}
	return nil
}

func (c *Claims) dates(all map[string]any) (err error) {
	var has bool
	if c.Expires, has, err = timeOf(all, "exp"); err != nil {
		return err
	}
	if !has {
		return errors.New("exp is missing")
	}
	if c.Issued, _, err = timeOf(all, "iat"); err != nil {
		return err
	}
	_, _, err = timeOf(all, "nbf")
	return err
}

// timeOf is a claim in seconds since 1970, with or without a fraction.
func timeOf(all map[string]any, name string) (at time.Time, has bool, err error) {
	v, has := all[name]
	if !has {
		return at, false, nil
	}
	number, ok := v.(json.Number)
	seconds, err := number.Float64()
	if !ok || err != nil || seconds < 0 || seconds > latestTime {
		return at, true, fmt.Errorf("%s: want seconds since 1970", name)
	}
	return time.UnixMilli(int64(seconds * 1000)), true, nil
}

// rights are those in the claim "tidewire".
func (c *Claims) rights(all map[string]any) error {
	own, has := all["tidewire"]
	if !has {
		return nil
	}
	object, ok := own.(map[string]any)
	if !ok {
		return errors.New("tidewire: want an object")
	}
	allow, has := object["allow"]
	if !has {
		return nil
	}
	list, ok := allow.([]any)
	if !ok {
		return errors.New("tidewire.allow: want a list of rules")
	}
	for _, item := range list {
		text, ok := item.(string)
		if !ok {
			return errors.New("tidewire.allow: want a list of rules")
		}
		r, err := ParseLiteralRule(text)
		if err != nil {
			return fmt.Errorf("tidewire.allow: %w", err)
		}
		c.Allow = append(c.Allow, r)
	}
	return nil
}
