package gateway_test

import (
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/auth"
	"github.com/tidewire/tidewire/internal/gateway"
)

// TestReceive_RightEndsWhileItWaits: a receive that waits is leased nothing once its right is gone, and gets the error of a new request.
func TestReceive_RightEndsWhileItWaits(t *testing.T) {
	t.Parallel()
	for name, one := range map[string]struct {
		life time.Duration
		end  func(acts *administration, snapshot *atomic.Pointer[auth.Snapshot], policy *auth.Policy, server *gateway.Server)
		want string
	}{
		"revoked": {time.Hour, func(acts *administration, snapshot *atomic.Pointer[auth.Snapshot], _ *auth.Policy, _ *gateway.Server) {
			snapshot.Store(auth.NewSnapshot(nil, nil, map[string]time.Time{"ann": time.Now().Add(time.Hour)}))
			acts.changed(auth.Change{})
		}, "401 invalid_token"},
		"rules": {time.Hour, func(_ *administration, snapshot *atomic.Pointer[auth.Snapshot], policy *auth.Policy, server *gateway.Server) {
			key, err := auth.NewSecret("", tokenSecret)
			if err != nil {
				t.Error(err)
			}
			if err := policy.Reload(auth.Config{Access: snapshot.Load, Token: auth.TokenConfig{Audience: "tidewire"}, Keys: []auth.Key{key}}); err != nil {
				t.Error(err)
			}
			server.RulesChanged()
		}, "403 forbidden"},
		"expired": {shortLife, nil, "401 token_expired"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			acts := &administration{}
			var snapshot atomic.Pointer[auth.Snapshot]
			snapshot.Store(auth.NewSnapshot(nil, nil, nil))
			consume, err := auth.ParseRule("consume queue:*")
			if err != nil {
				t.Fatal(err)
			}
			policy := policyOf(t, auth.Config{Access: snapshot.Load, Rules: []auth.RoleRule{{Role: "user", Allow: []auth.Rule{consume}}}})
			c := serveClosed(t, func(cfg *gateway.Config) { cfg.Auth.Policy, cfg.Auth.Administration = policy, acts })
			of := func(look func() int) (n int) {
				c.queues.change(func() { n = look() })
				return n
			}
			token := tokenOf(t, "ann", one.life)
			answer := make(chan string, 1)
			go func() { answer <- c.status(http.MethodPost, "/v1/queues/jobs/receive?wait_ms=20000", "", token) }()
			if one.end != nil {
				waitFor(t, func() bool { return of(func() int { return c.queues.receiving }) > 0 }, "nobody waits")
				one.end(acts, &snapshot, policy, c.server)
			}
			if got := <-answer; got != one.want {
				t.Errorf("answered with %s, want %s", got, one.want)
			}
			c.enqueued(1)
			if leased := of(func() int { return len(c.queues.queues["jobs"].leased) }); leased > 0 {
				t.Error("it was leased a message")
			}
		})
	}
}
