package auth

import (
	"context"
	"errors"
	"fmt"
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
	// Keys verify tokens, beside those of KeySet. One of the two is required.
	Keys []Key
	// KeySet is the JWKS of the issuer. Defaults to none. It needs Token.Issuer.
	KeySet *KeySet
	// Rules are the rights of roles. Without a rule a caller has no right.
	Rules []RoleRule
	// Anonymous lets callers without a token in, as the role "anonymous". Defaults to false.
	Anonymous bool
}

// Policy decides who a caller is, and what it may do. It never changes: a new configuration is a new Policy, behind one atomic pointer. Safe for concurrent use.
type Policy struct {
	cfg Config
	now func() time.Time
}

// NewPolicy checks the configuration and returns its Policy.
func NewPolicy(cfg Config) (*Policy, error) {
	switch {
	case cfg.Token.Audience == "":
		return nil, errors.New("auth: the audience is missing: a token says for which server it was made")
	case len(cfg.Keys) == 0 && cfg.KeySet == nil:
		return nil, errors.New("auth: no key: give a secret file, a public key file or a JWKS address")
	case cfg.KeySet != nil && cfg.Token.Issuer == "":
		return nil, errors.New("auth: a JWKS address needs the issuer, so that tokens of another issuer with the same keys are not taken")
	case len(cfg.Keys) > 0 && cfg.KeySet != nil:
		return nil, errors.New("auth: keys from files and from a JWKS address: give one of them")
	}
	return &Policy{cfg: cfg, now: time.Now}, nil
}

// Caller is who a connection or request is. It never changes: a new token makes a new Caller.
type Caller struct {
	User    string // the token's sub; "" of an anonymous caller
	Role    string
	Issued  time.Time // zero if the token does not say
	Expires time.Time // when the token ends for this server: its exp and the leeway; zero of an anonymous caller
	grants  *Grants
}

// Authenticate returns the caller of a token. The error is ErrInvalidToken, ErrTokenExpired or ErrNoKeys; its text is for the log, and not for clients.
func (p *Policy) Authenticate(ctx context.Context, token string) (*Caller, error) {
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
	grants := NewGrants(p.rulesOf(claims.Role, true), claims.Value)
	grants.rules = append(grants.rules, claims.Allow...)
	return &Caller{
		User: claims.Subject, Role: claims.Role, Issued: claims.Issued, Expires: claims.Expires.Add(p.cfg.Token.Leeway), grants: grants,
	}, nil
}

// AnonymousCaller returns the caller of a connection without a token, or false if there is none.
func (p *Policy) AnonymousCaller() (*Caller, bool) {
	if !p.cfg.Anonymous {
		return nil, false
	}
	nothing := func(string) (string, bool) { return "", false }
	return &Caller{Role: Anonymous, grants: NewGrants(p.rulesOf(Anonymous, false), nothing)}, true
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

// May reports whether the caller has the right. Names are compared as they are: partition 3 of the stream orders is orders/3, and needs a rule such as
// "read stream:orders/*", because a stream of that name may also have nothing to do with orders.
func (c *Caller) May(v Verb, k Kind, name string) bool { return c.grants.Allow(v, k, name) }

// MayQuery reports whether the caller may read what matches each of these sets of tags, the items of a query: without any, everything.
func (c *Caller) MayQuery(store string, items [][]string) bool {
	return c.grants.AllowTags("query", store, items)
}

// MayAppend reports whether the caller may append events with these sets of tags.
func (c *Caller) MayAppend(store string, events [][]string) bool {
	return c.grants.AllowTags("append", store, events)
}

// MayTakeID reports whether the caller may append an event of these tags with the id. Ids are unique in a store: a caller whose right to append
// is limited to tags takes only ids that begin with one of them and a slash, so that it cannot take those of others.
func (c *Caller) MayTakeID(store string, tags []string, id string) bool {
	return c.grants.AllowID("append", store, tags, id)
}

// MaySee reports whether the caller has any right on the name: such names are in the lists that it gets.
func (c *Caller) MaySee(k Kind, name string) bool { return c.grants.AllowAny(k, name) }
