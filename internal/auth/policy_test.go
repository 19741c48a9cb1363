package auth

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"
)

func mustPolicy(t *testing.T, cfg Config) *Policy {
	t.Helper()
	p, err := NewPolicy(cfg)
	if err != nil {
		t.Fatal(err)
	}
	p.now = func() time.Time { return now }
	return p
}

func TestPolicy_Authenticate(t *testing.T) {
	t.Parallel()
	p := mustPolicy(t, Config{Token: config, Keys: []Key{mustKey(t)(NewSecret("", secret))}, Rules: []RoleRule{
		{AnyRole, mustRules(t, "join room:public-*")},
		{"user", mustRules(t, "read stream:user/{sub}", "query events:default#tenant:{claim.tenant}")},
		{"worker", mustRules(t, "consume queue:*")},
		{Anonymous, mustRules(t, "read stream:news")},
	}})
	caller := func(claims map[string]any) *Caller {
		t.Helper()
		c, err := p.Authenticate(t.Context(), sign(t, secret, hs256, claims))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	user := caller(good("tenant", "7", "tidewire", map[string]any{"allow": []string{"publish stream:extra"}}))
	for right, got := range map[string]bool{
		"a role's own name":     yes(user.May(t.Context(), "read", Stream, "user/u7")),
		"everybody's":           yes(user.May(t.Context(), "join", Room, "public-1")),
		"the token's":           yes(user.May(t.Context(), "publish", Stream, "extra")),
		"a tenant's":            yes(user.MayQuery(t.Context(), "default", [][]string{{"tenant:7"}})),
		"what it has a part in": user.MaySee(Stream, "user/u7"),
	} {
		if !got {
			t.Errorf("%s: no right", right)
		}
	}
	for right, got := range map[string]bool{
		"another's name":            yes(user.May(t.Context(), "read", Stream, "user/u8")),
		"a partition":               yes(user.May(t.Context(), "read", Stream, "user/u7/0")),
		"another role's":            yes(user.May(t.Context(), "consume", Queue, "jobs")),
		"anonymous callers'":        yes(user.May(t.Context(), "read", Stream, "news")),
		"another tenant's":          yes(user.MayQuery(t.Context(), "default", [][]string{{"tenant:8"}})),
		"everything":                yes(user.MayQuery(t.Context(), "default", nil)),
		"an append":                 yes(user.MayAppend(t.Context(), "default", [][]string{{"tenant:7"}})),
		"what it has no part in":    user.MaySee(Queue, "jobs"),
		"anonymous said by a token": yes(caller(good("role", Anonymous)).May(t.Context(), "read", Stream, "news")),
		"the role * of a token":     yes(caller(good("role", AnyRole)).May(t.Context(), "read", Stream, "user/u7")),
	} {
		if got {
			t.Errorf("%s: a right", right)
		}
	}
	if worker := caller(good("role", "worker")); !yes(worker.May(t.Context(), "consume", Queue, "jobs")) || yes(worker.May(t.Context(), "read", Stream, "user/u7")) {
		t.Error("a worker has a user's rights, or not its own")
	}
	if _, ok := p.AnonymousCaller(); ok {
		t.Error("anonymous callers are let in")
	}
}

func TestPolicy_Anonymous(t *testing.T) {
	t.Parallel()
	p := mustPolicy(t, Config{Token: config, Keys: []Key{mustKey(t)(NewSecret("", secret))}, Anonymous: true, Rules: []RoleRule{
		{AnyRole, mustRules(t, "join room:**")}, {Anonymous, mustRules(t, "read stream:news", "read stream:{sub}")},
	}})
	c, ok := p.AnonymousCaller()
	if !ok || c.User != "" || !yes(c.May(t.Context(), "read", Stream, "news")) || yes(c.May(t.Context(), "join", Room, "lobby")) || yes(c.May(t.Context(), "read", Stream, "")) {
		t.Errorf("%+v, %v", c, ok)
	}
}

func TestPolicy_KeySet(t *testing.T) {
	t.Parallel()
	i := newIssuer(t, "")
	i.answers(http.StatusServiceUnavailable, "")
	set, err := NewKeySet(i.URL, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	p := mustPolicy(t, Config{Token: config, KeySet: set})
	if _, err := p.Authenticate(t.Context(), "no token"); !errors.Is(err, ErrInvalidToken) || i.asked.Load() > 0 {
		t.Errorf("%v; the issuer was asked %d times for a text that is no token", err, i.asked.Load())
	}
	if _, err := p.Authenticate(t.Context(), sign(t, secret, hs256, good())); !errors.Is(err, ErrNoKeys) || i.asked.Load() != 1 {
		t.Errorf("%v; asked %d times", err, i.asked.Load())
	}
}

func TestNewPolicy_Wrong(t *testing.T) {
	t.Parallel()
	key := mustKey(t)(NewSecret("", secret))
	set, err := NewKeySet("https://id.example.com/", nil)
	if err != nil {
		t.Fatal(err)
	}
	noIssuer := config
	noIssuer.Issuer = ""
	for name, cfg := range map[string]Config{
		"no audience":      {Keys: []Key{key}},
		"no key":           {Token: config},
		"no issuer":        {Token: noIssuer, KeySet: set},
		"two kinds of key": {Token: config, Keys: []Key{key}, KeySet: set},
	} {
		if _, err := NewPolicy(cfg); err == nil {
			t.Errorf("%s: a policy", name)
		}
	}
}

// yes is an answer to which there was no error.
func yes(may bool, err error) bool { return may && err == nil }

// TestPolicy_Renew: after the rules have changed, a caller has the rights that they give to its token, as long as the token lasts.
func TestPolicy_Renew(t *testing.T) {
	t.Parallel()
	cfg := Config{Token: config, Keys: []Key{mustKey(t)(NewSecret("", secret))}, Anonymous: true, Ask: func(_ context.Context, q Question) (bool, error) {
		return q.Name == "asked" && strings.Contains(string(q.Claims), `"sub":"u7"`), nil
	}}
	p := mustPolicy(t, cfg)
	c, err := p.Authenticate(t.Context(), sign(t, secret, hs256, good()))
	if err != nil {
		t.Fatal(err)
	}
	nobody, _ := p.AnonymousCaller()
	cfg.Anonymous, cfg.Rules = false, []RoleRule{{"user", mustRules(t, "read stream:{sub}")}}
	if err := p.Reload(cfg); err != nil {
		t.Fatal(err)
	}
	renewed, ok := p.Renew(c)
	if !ok || !renewed.Expires.Equal(c.Expires) || yes(c.May(t.Context(), "read", Stream, "u7")) || !yes(renewed.May(t.Context(), "read", Stream, "u7")) ||
		!yes(renewed.May(t.Context(), "read", Stream, "asked")) || yes(renewed.May(t.Context(), "read", Stream, "other")) {
		t.Errorf("%+v, %v", renewed, ok)
	}
	if _, ok := p.Renew(nobody); ok {
		t.Error("a caller without a token is let in, which the rules do not allow any more")
	}
}
