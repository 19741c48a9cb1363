package gateway

import (
	"crypto/sha256"
	"encoding/base64"

	"github.com/tidewire/tidewire/internal/auth"
)

// The longest names that clients choose to make a request repeatable, in bytes.
const (
	maxClientBytes    = 128
	maxUniqueKeyBytes = 1024
)

// ownName returns a name that a client has chosen, client or unique_key, as it is stored: in closed mode it belongs to the caller, so that
// nobody can use up the sequences or keys of others. Two callers never have the same one: a user has no control characters. A name
// that would be longer than most bytes is stored as its SHA-256; one that was too long before is returned as it is, for the store to reject.
func ownName(c *auth.Caller, name string, most int) string {
	if c == nil || len(name) > most {
		return name
	}
	own := c.User + "\n" + name
	if len(own) > most {
		sum := sha256.Sum256([]byte(own))
		own = "\t" + base64.RawURLEncoding.EncodeToString(sum[:])
	}
	return own
}
