package gateway_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/auth"
	"github.com/tidewire/tidewire/internal/gateway"
)

// administration tells a server of changes, and records nothing.
type administration struct{ changed func(auth.Change) }

func (a *administration) OnChange(f func(auth.Change)) { a.changed = f }

func (a *administration) DisconnectUser(_ context.Context, _, user string) error {
	a.changed(auth.Change{Disconnected: []string{user}})
	return nil
}

func (a *administration) RevokeUser(context.Context, string, string, time.Time, time.Time) error {
	return nil
}

func (a *administration) RevokeToken(context.Context, string, string, time.Time) error { return nil }

// TestAccessChanged_DuringAHandshake: a change that comes while a caller is being checked, and so has no connection yet, counts for the connection. A
// right that was taken meanwhile, and a disconnect, end it; a change for another user does not.
func TestAccessChanged_DuringAHandshake(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change auth.Change
		ends   bool
	}{
		"its right":       {auth.Change{Rights: []string{"ann"}}, true},
		"all rights":      {auth.Change{AllRights: true}, true},
		"a disconnect":    {auth.Change{Disconnected: []string{"ann"}}, true},
		"another's right": {auth.Change{Rights: []string{"bob"}, Disconnected: []string{"bob"}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			acts := &administration{}
			key, err := auth.NewSecret("", tokenSecret)
			if err != nil {
				t.Fatal(err)
			}
			ask := func(context.Context, auth.Question) (bool, error) { // the change comes while the answer is on its way
				acts.changed(c.change)
				return true, nil
			}
			policy, err := auth.NewPolicy(auth.Config{Token: auth.TokenConfig{Audience: "tidewire"}, Keys: []auth.Key{key}, Ask: ask})
			if err != nil {
				t.Fatal(err)
			}
			server := serveClosed(t, func(cfg *gateway.Config) { cfg.Auth.Policy, cfg.Auth.Administration = policy, acts })
			w := server.as("/ws/ingest?ack=1", tokenOf(t, "ann", time.Hour))
			if c.ends {
				if code := closeOf(w); code != 4401 {
					t.Errorf("closed with %d", code)
				}
				return
			}
			send(t, w.Conn, "written with the right")
			if answer := w.next(); !strings.Contains(answer, "1") {
				t.Errorf("got %s", answer)
			}
		})
	}
}

// TestAccessChanged_AnswersFirst: a disconnect comes after the answers to what was asked before it.
func TestAccessChanged_AnswersFirst(t *testing.T) {
	t.Parallel()
	acts := &administration{}
	c := serveClosed(t, func(cfg *gateway.Config) { cfg.Auth.Administration = acts })
	w := c.as("/ws", tokenOf(t, "ann", time.Hour, "publish stream:orders"))
	c.streams.hold(true)
	send(t, w.Conn, `{"id":7,"type":"publish","stream":"orders","payload":"x"}`)
	waitFor(t, func() bool {
		c.streams.commits.mu.Lock()
		defer c.streams.commits.mu.Unlock()
		return len(c.streams.waiting) == 1
	}, "the message was not submitted")
	if err := acts.DisconnectUser(t.Context(), "ops", "ann"); err != nil {
		t.Fatal(err)
	}
	c.streams.hold(false)
	if answer := w.next(); !strings.HasPrefix(answer, `{"type":"ok","id":7,`) {
		t.Errorf("got %s", answer)
	}
	if code := closeOf(w); code != 4401 {
		t.Errorf("closed with %d", code)
	}
}

// TestProbes_LookAtNoToken: everybody may ask whether the server lives, whatever the token.
func TestProbes_LookAtNoToken(t *testing.T) {
	t.Parallel()
	c := serveClosed(t, nil)
	for _, path := range []string{"/healthz", "/readyz"} {
		if got := c.status("GET", path, "", "wrong"); got != "200" {
			t.Errorf("%s: %s", path, got)
		}
	}
}
