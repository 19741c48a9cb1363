package gateway

import (
	"testing"

	"github.com/tidewire/tidewire/internal/auth"
)

// TestIdentity_RevokedBeforeANewToken: the revocation of a token that the connection has replaced meanwhile does not count for the new one.
func TestIdentity_RevokedBeforeANewToken(t *testing.T) {
	t.Parallel()
	i := &identity{}
	i.caller.Store(&auth.Caller{User: "ann"})
	i.revoke(&auth.Caller{User: "ann"}) // the caller before
	if i.revoked.Load() || i.finishing {
		t.Errorf("revoked %v, finishing %v", i.revoked.Load(), i.finishing)
	}
}
