package auth

import (
	"errors"
	"time"
)

// ErrTooMany: there are as many API keys or revocations as a server holds in memory.
var ErrTooMany = errors.New("auth: too many API keys or revocations")

// ErrNoKey: no active key has that id.
var ErrNoKey = errors.New("access: no active key has this id")

// KeyInfo is an API key as it is listed.
type KeyInfo struct {
	ID, Name         string
	Allow            []string
	Created          time.Time
	Expires, Revoked *time.Time // nil: never
	Expired          bool       // by the clock of the database
	By               string     // who has made it, "" if that is not known
}

// Snapshot has the API keys and revocations that hold at one time. It never changes. Safe for concurrent use.
type Snapshot struct {
	keys   map[string]*knownKey // by id
	tokens map[string]struct{}  // by jti
	users  map[string]time.Time // tokens of the user that were issued before are revoked
}

// knownKey is a key with what all its callers share.
type knownKey struct {
	APIKey
	grants *Grants
}

// NewSnapshot returns a Snapshot of keys, none of which is revoked, and revocations: the jti of tokens, and users with the time before
// which a token was issued that is revoked. The maps are the Snapshot's own from now on.
func NewSnapshot(keys []APIKey, tokens map[string]struct{}, users map[string]time.Time) *Snapshot {
	s := &Snapshot{keys: make(map[string]*knownKey, len(keys)), tokens: tokens, users: users}
	for _, k := range keys {
		s.keys[k.ID] = &knownKey{APIKey: k, grants: &Grants{rules: k.Allow}}
	}
	return s
}

// revokes reports whether a token is revoked. One that does not say when it was issued counts as issued before. So does one that
// was issued up to the leeway later: the issuer's clock may be that far ahead.
func (s *Snapshot) revokes(jti, user string, issued time.Time, leeway time.Duration) bool {
	if _, revoked := s.tokens[jti]; revoked && jti != "" {
		return true
	}
	before, has := s.users[user]
	return has && issued.Before(before.Add(leeway))
}

// Valid reports whether the caller's key or token has not been revoked since it came. It does not look at its end. It takes less than a microsecond.
func (p *Policy) Valid(c *Caller) bool {
	cfg := p.cfg.Load()
	if cfg.Access == nil {
		return true
	}
	s := cfg.Access()
	switch c.Kind {
	case ByKey:
		return s.keys[c.keyID] != nil
	case ByToken:
		return !s.revokes(c.jti, c.User, c.Issued, cfg.Token.Leeway)
	}
	return true
}

// Change is what a connection has to know of a new Snapshot, and of changed rights.
type Change struct {
	// Disconnected are users whose connections end, and who may connect again with a new token.
	Disconnected []string
	// Rights are users whose rights may have changed: what Config.Ask has answered for them does not count any more. AllRights means
	// every user.
	Rights    []string
	AllRights bool
}
