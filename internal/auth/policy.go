package auth

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
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
	// RulesFrom is where they were written, such as the name of a file. Defaults to unknown.
	RulesFrom string
	// Anonymous lets callers without a token in, as the role "anonymous". Defaults to false.
	Anonymous bool
	// Access returns the API keys and the revocations that hold now. It is called for each token, and has to be quick. Defaults to none: API keys are
	// not taken, and no token is revoked.
	Access func() *Snapshot
	// Ask is asked when no rule grants a right: at most once a minute for each caller, verb, kind and name. Defaults to none: rules alone decide.
	Ask func(context.Context, Question) (bool, error)
}

// Policy decides who a caller is, and what it may do. Its configuration is one value, which Reload replaces as a whole. Safe for concurrent use.
type Policy struct {
	cfg     atomic.Pointer[Config]
	now     func() time.Time
	answers *answers // nil without Config.Ask
	tokens  verified
	uses    sync.Map // of API keys: from an id to an *atomic.Int64, Unix seconds
}

// NewPolicy checks the configuration and returns its Policy.
func NewPolicy(cfg Config) (*Policy, error) {
	p := &Policy{now: time.Now}
	if err := p.Reload(cfg); err != nil {
		return nil, err
	}
	if cfg.Ask != nil {
		p.answers = newAnswers(cfg.Ask)
	}
	return p, nil
}

// Reload checks the configuration and puts it in the place of the former one. Access and Ask have to be those of NewPolicy. Callers keep the
// rights that they have: see Renew.
func (p *Policy) Reload(cfg Config) error {
	cfg.Rules = slices.Clone(cfg.Rules)
	switch {
	case cfg.Token.Audience == "":
		return errors.New("auth: the audience is missing: a token says for which server it was made")
	case len(cfg.Keys) == 0 && cfg.KeySet == nil && cfg.Access == nil:
		return errors.New("auth: no key: give a secret file, a public key file or a JWKS address, or accept API keys")
	case cfg.KeySet != nil && cfg.Token.Issuer == "":
		return errors.New("auth: a JWKS address needs the issuer (--auth-issuer), so that tokens of another issuer with the same keys are not taken")
	case len(cfg.Keys) > 0 && cfg.KeySet != nil:
		return errors.New("auth: keys from files and from a JWKS address: give one of them")
	}
	for i := range cfg.Rules { // a copy: the rules are the caller's
		r := &cfg.Rules[i]
		r.Allow = slices.Clone(r.Allow)
		for j := range r.Allow {
			r.Allow[j].origin = &Origin{r.Role, cfg.RulesFrom}
		}
	}
	p.cfg.Store(&cfg)
	return nil
}

// Authenticate returns the caller of a token or of an API key. The error is ErrInvalidToken, ErrTokenExpired or ErrNoKeys; its text is for the log, and not for clients.
func (p *Policy) Authenticate(ctx context.Context, token string) (*Caller, error) {
	if strings.HasPrefix(token, apiKeyPrefix) {
		return p.byAPIKey(token)
	}
	cfg, id, now := p.cfg.Load(), sha256.Sum256([]byte(token)), p.now()
	if c := p.tokens.get(id, cfg, now); c != nil && p.Valid(c) {
		return c, nil
	}
	keys := cfg.Keys
	if cfg.KeySet != nil {
		s, err := split(token)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrInvalidToken, err)
		}
		if keys, err = cfg.KeySet.Keys(ctx, s.header.KeyID); err != nil {
			return nil, err
		}
	}
	claims, err := Verify(token, keys, cfg.Token, now)
	if err != nil {
		return nil, err
	}
	if cfg.Access != nil && cfg.Access().revokes(claims.ID, claims.Subject, claims.Issued, cfg.Token.Leeway) {
		return nil, fmt.Errorf("%w: the token with the jti %q of the user %q was revoked", ErrInvalidToken, claims.ID, claims.Subject)
	}
	c := cfg.caller(claims)
	c.Expires, c.answers = claims.Expires.Add(cfg.Token.Leeway), p.answers
	if p.answers != nil {
		c.id = id
		c.claims, _ = json.Marshal(claims.all) // so that the function reads what the rules have read; no value from JSON fails
	}
	p.tokens.put(id, c, now)
	return c, nil
}

// caller is who the claims say, with the rights of its role and its own.
func (cfg *Config) caller(claims *Claims) *Caller {
	grants := NewGrants(cfg.rulesOf(claims.Role, true), claims.Value)
	grants.rules = append(grants.rules, claims.Allow...)
	return &Caller{User: claims.Subject, Role: claims.Role, Kind: ByToken, Issued: claims.Issued, jti: claims.ID, grants: grants, token: claims, rules: cfg}
}

// Renew returns the caller with the rights of the rules as they are now, or false if it is not let in any more. A token is not verified again: the
// keys and claims that counted when it came count until its end.
func (p *Policy) Renew(c *Caller) (*Caller, bool) {
	switch c.Kind {
	case ByAnonymous:
		return p.AnonymousCaller()
	case ByKey:
		return c, true
	}
	renewed := p.cfg.Load().caller(c.token)
	renewed.Expires, renewed.answers, renewed.id, renewed.claims = c.Expires, c.answers, c.id, c.claims
	renewed.asked.Store(c.asked.Load())
	return renewed, true
}

// AnonymousCaller returns the caller of a connection without a token, or false if there is none.
func (p *Policy) AnonymousCaller() (*Caller, bool) {
	cfg := p.cfg.Load()
	if !cfg.Anonymous {
		return nil, false
	}
	return p.withoutToken(cfg), true
}

func (p *Policy) withoutToken(cfg *Config) *Caller {
	nothing := func(string) (string, bool) { return "", false }
	return &Caller{
		Role: Anonymous, Kind: ByAnonymous, grants: NewGrants(cfg.rulesOf(Anonymous, false), nothing), answers: p.answers, claims: []byte(`{"role":"anonymous"}`), rules: cfg,
	}
}

// Current reports whether the caller has its rights from the rules as they are now.
func (p *Policy) Current(c *Caller) bool { return c.Kind == ByKey || c.rules == p.cfg.Load() }

func (cfg *Config) rulesOf(role string, token bool) []Rule {
	var rules []Rule
	for i := range cfg.Rules {
		r := &cfg.Rules[i]
		if r.Role == role && (role != Anonymous || !token) || r.Role == AnyRole && token {
			rules = append(rules, r.Allow...)
		}
	}
	return rules
}
