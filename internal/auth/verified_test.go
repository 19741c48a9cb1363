package auth

import (
	"fmt"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/auth/authtest"
)

// TestVerified: a token that was verified is not verified again for a minute, and no longer than it counts: not after its end, after a change of the
// rules, or after it was revoked. The memory is bounded.
func TestVerified(t *testing.T) {
	t.Parallel()
	secret := []byte("a secret of at least 32 bytes, for tests")
	key, err := NewSecret("", secret)
	if err != nil {
		t.Fatal(err)
	}
	snapshot := &Snapshot{}
	cfg := Config{Token: TokenConfig{Audience: "tidewire"}, Keys: []Key{key}, Access: func() *Snapshot { return snapshot }}
	p, err := NewPolicy(cfg)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	p.now = func() time.Time { return now }
	who := func(token string) *Caller {
		t.Helper()
		c, err := p.Authenticate(t.Context(), token)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	token := authtest.Token(t, secret, "ann", time.Hour, nil)
	first := who(token)
	if who(token) != first {
		t.Error("it was verified again at once")
	}
	if who(authtest.Token(t, secret, "bob", time.Hour, nil)) == first {
		t.Error("another token has the same caller")
	}
	now = now.Add(verifiedLife)
	if second := who(token); second == first {
		t.Error("it was not verified again after its time")
	} else if err := p.Reload(cfg); err != nil {
		t.Fatal(err)
	} else if who(token) == second {
		t.Error("it has the caller of the former rules")
	}
	other, err := NewSecret("", []byte("another secret of at least 32 bytes, for tests"))
	if err != nil {
		t.Fatal(err)
	}
	who(token)
	if err := p.Reload(Config{Token: cfg.Token, Keys: []Key{other}, Access: cfg.Access}); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Authenticate(t.Context(), token); err == nil {
		t.Error("it counts without its key")
	}
	short := authtest.Token(t, secret, "ann", 20*time.Second, nil)
	if err := p.Reload(cfg); err != nil {
		t.Fatal(err)
	}
	now = time.Now()
	who(short)
	now = now.Add(30 * time.Second)
	if _, err := p.Authenticate(t.Context(), short); err == nil {
		t.Error("it counts after its end")
	}
	for n := range 3 * maxVerified {
		p.tokens.put([32]byte{byte(n), byte(n >> 8), byte(n >> 16)}, first, now)
	}
	if n := len(p.tokens.all); n > maxVerified {
		t.Error(fmt.Sprint(n, " tokens are remembered"))
	}
}
