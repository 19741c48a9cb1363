package auth

import (
	"crypto/sha256"
	"sync"
	"time"
)

const (
	// maxVerified is how many tokens are remembered: about 10 MB.
	maxVerified = 4096
	// verifiedLife is how long a token is not verified again: as long may a key count that its issuer has withdrawn.
	verifiedLife = time.Minute
)

// verified remembers the callers of tokens that were verified, by the hash of the token: each HTTP request sends one, and all clients of a server that was
// started again come back at once. A signature takes 50 us, and this 1 us.
type verified struct {
	mu  sync.Mutex
	all map[[sha256.Size]byte]verifiedToken
}

type verifiedToken struct {
	caller *Caller
	until  time.Time
}

// get returns the caller, or nil. The token has not ended, and the rules are those of cfg; it may have been revoked.
func (v *verified) get(id [sha256.Size]byte, cfg *Config, now time.Time) *Caller {
	v.mu.Lock()
	defer v.mu.Unlock()
	known, ok := v.all[id]
	if !ok || known.caller.rules != cfg || !now.Before(known.until) || !now.Before(known.caller.Expires) {
		return nil
	}
	return known.caller
}

// put remembers a caller. If there are too many, any eighth of them is forgotten.
func (v *verified) put(id [sha256.Size]byte, c *Caller, now time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.all == nil {
		v.all = make(map[[sha256.Size]byte]verifiedToken)
	}
	if len(v.all) >= maxVerified {
		n := 0
		for other := range v.all {
			if n++; n > maxVerified/8 {
				break
			}
			delete(v.all, other)
		}
	}
	v.all[id] = verifiedToken{c, now.Add(verifiedLife)}
}
