package auth

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Roles with a meaning of their own.
const (
	AnyRole   = "*"         // in a RoleRule: every caller with a token
	Anonymous = "anonymous" // callers without a token, where they are allowed
)

// RoleRule grants rights to a role.
type RoleRule struct {
	Role  string
	Allow []Rule
}

// Config configures a Policy.
type Config struct {
	Token TokenConfig
	// Keys verify tokens. One of Keys, KeySet and Access is required.
	Keys []Key
	// KeySet is the JWKS of the issuer. Defaults to none. It needs Token.Issuer.
	KeySet *KeySet
	// Rules are the rights of roles. Without a rule a caller has no right.
	Rules []RoleRule
	// Anonymous lets callers without a token in, as the role "anonymous". Defaults to false.
	Anonymous bool
	// Access returns the API keys and the revocations that hold now. It is called for each token, and has to be quick. Defaults to none: API keys are
	// not taken, and no token is revoked.
	Access func() *Snapshot
	// Ask is asked when no rule grants a right: at most once a minute for each caller, verb, kind and name. Defaults to none: rules alone decide.
	Ask func(context.Context, Question) (bool, error)
}

// Policy decides who a caller is, and what it may do. It never changes: a new configuration is a new Policy, behind one atomic pointer. Safe for concurrent use.
type Policy struct {
	cfg     Config
	now     func() time.Time
	answers *answers // nil without Config.Ask
}

// NewPolicy checks the configuration and returns its Policy.
func NewPolicy(cfg Config) (*Policy, error) {
	switch {
	case cfg.Token.Audience == "":
		return nil, errors.New("auth: the audience is missing: a token says for which server it was made")
	case len(cfg.Keys) == 0 && cfg.KeySet == nil && cfg.Access == nil:
		return nil, errors.New("auth: no key: give a secret file, a public key file or a JWKS address, or accept API keys")
	case cfg.KeySet != nil && cfg.Token.Issuer == "":
		return nil, errors.New("auth: a JWKS address needs the issuer, so that tokens of another issuer with the same keys are not taken")
	case len(cfg.Keys) > 0 && cfg.KeySet != nil:
		return nil, errors.New("auth: keys from files and from a JWKS address: give one of them")
	}
	p := &Policy{cfg: cfg, now: time.Now}
	if cfg.Ask != nil {
		p.answers = newAnswers(cfg.Ask)
	}
	return p, nil
}

// Authenticate returns the caller of a token or of an API key. The error is ErrInvalidToken, ErrTokenExpired or ErrNoKeys; its text is for the log, and not for clients.
func (p *Policy) Authenticate(ctx context.Context, token string) (*Caller, error) {
	if strings.HasPrefix(token, apiKeyPrefix) {
		return p.byAPIKey(token)
	}
	keys := p.cfg.Keys
	if p.cfg.KeySet != nil {
		s, err := split(token)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrInvalidToken, err)
		}
		if keys, err = p.cfg.KeySet.Keys(ctx, s.header.KeyID); err != nil {
			return nil, err
		}
	}
	claims, err := Verify(token, keys, p.cfg.Token, p.now())
	if err != nil {
		return nil, err
	}
	if p.cfg.Access != nil && p.cfg.Access().revokes(claims.ID, claims.Subject, claims.Issued) {
		return nil, fmt.Errorf("%w: the token with the jti %q of the user %q was revoked", ErrInvalidToken, claims.ID, claims.Subject)
	}
	grants := NewGrants(p.rulesOf(claims.Role, true), claims.Value)
	grants.rules = append(grants.rules, claims.Allow...)
	c := &Caller{
		User: claims.Subject, Role: claims.Role, Kind: ByToken, Issued: claims.Issued, Expires: claims.Expires.Add(p.cfg.Token.Leeway),
		jti: claims.ID, grants: grants, answers: p.answers,
	}
	if p.answers != nil {
		c.id, c.claims = sha256.Sum256([]byte(token)), claims.text
	}
	return c, nil
}

// AnonymousCaller returns the caller of a connection without a token, or false if there is none.
func (p *Policy) AnonymousCaller() (*Caller, bool) {
	if !p.cfg.Anonymous {
		return nil, false
	}
	nothing := func(string) (string, bool) { return "", false }
	return &Caller{
		Role: Anonymous, Kind: ByAnonymous, grants: NewGrants(p.rulesOf(Anonymous, false), nothing), answers: p.answers, claims: []byte(`{"role":"anonymous"}`),
	}, true
}

func (p *Policy) rulesOf(role string, token bool) []Rule {
	var rules []Rule
	for _, r := range p.cfg.Rules {
		if r.Role == role && (role != Anonymous || !token) || r.Role == AnyRole && token {
			rules = append(rules, r.Allow...)
		}
	}
	return rules
}
