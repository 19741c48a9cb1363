package gateway_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/auth"
	"github.com/tidewire/tidewire/internal/gateway"
	"github.com/tidewire/tidewire/internal/testkit"
	"github.com/tidewire/tidewire/websocket"
)

// administration tells a server of changes, and records nothing.
type administration struct {
	cannedAdministration
	changed func(auth.Change)
}

func (a *administration) OnChange(f func(auth.Change)) { a.changed = f }

// TestAccessChanged_DuringAHandshake: a change that comes while a caller is being checked, and so has no connection yet, counts for the connection. A
// right that was taken meanwhile, a disconnect, and other rules end it; a change for another user does not.
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
		"rules":           {auth.Change{}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := serveRules(t, nil, "function")
			server.ask = func() { // the change comes while the answer is on its way
				if name == "rules" {
					server.allow("function")
				} else {
					server.acts.changed(c.change)
				}
			}
			w := server.as("/ws/ingest?ack=1", tokenOf(t, "ann", time.Hour))
			if c.ends {
				if code := closeOf(t, w); code != 4401 {
					t.Errorf("closed with %d", code)
				}
				return
			}
			send(t, w.socket, "written with the right")
			if answer := w.next(); !strings.Contains(answer, "1") {
				t.Errorf("got %s", answer)
			}
		})
	}
}

// TestAccessChanged_AnswersFirst: the end of a connection comes after the answers to what was asked before it. Of two reasons the graver one is told.
func TestAccessChanged_AnswersFirst(t *testing.T) {
	t.Parallel()
	disconnect, revoke := auth.Change{Disconnected: []string{"ann"}}, auth.Change{}
	for name, d := range map[string]struct {
		changes []auth.Change
		code    websocket.StatusCode
	}{
		"disconnected":              {[]auth.Change{disconnect}, 4401},
		"revoked":                   {[]auth.Change{revoke}, 4403},
		"disconnected, and revoked": {[]auth.Change{disconnect, revoke}, 4403},
	} {
		for _, path := range []string{"/ws", "/ws/ingest?ack=1"} {
			t.Run(name+" on "+path, func(t *testing.T) {
				t.Parallel()
				acts, stored := &administration{}, &memory{hold: make(chan struct{})}
				var snapshot atomic.Pointer[auth.Snapshot]
				snapshot.Store(auth.NewSnapshot(nil, nil, nil))
				policy := policyOf(t, auth.Config{Access: snapshot.Load})
				c := serveClosed(t, func(cfg *gateway.Config) {
					cfg.Auth.Administration, cfg.Auth.Policy, cfg.Engine.Ingest = acts, policy, stored.source
				})
				w := c.as(path, tokenOf(t, "ann", time.Hour, "publish stream:orders", "write ingest:*"))
				c.streams.hold(true)
				send(t, w.socket, `{"id":7,"type":"publish","stream":"orders","payload":"x"}`)
				testkit.Eventually(t, "the message is submitted", func() bool { return stored.waits() || c.streams.waits() })
				for _, change := range d.changes {
					if len(change.Disconnected) == 0 {
						snapshot.Store(auth.NewSnapshot(nil, nil, map[string]time.Time{"ann": time.Now().Add(time.Hour)}))
					}
					acts.changed(change)
				}
				c.streams.hold(false)
				close(stored.hold)
				if answer := w.next(); !strings.HasPrefix(answer, `{"type":"ok","id":7,`) && answer != "1" {
					t.Errorf("got %s", answer)
				}
				if code := closeOf(t, w); code != d.code {
					t.Errorf("closed with %d", code)
				}
			})
		}
	}
}
