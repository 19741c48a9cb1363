package gateway_test

import (
	"encoding/json"
	"log/slog"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/auth"
	"github.com/tidewire/tidewire/internal/gateway"
)

// TestReplay_Audit: the audit log has how each replay has ended, and after which message: also of one that was stopped, or whose caller has lost a right.
func TestReplay_Audit(t *testing.T) {
	t.Parallel()
	key, err := auth.NewSecret("", tokenSecret)
	if err != nil {
		t.Fatal(err)
	}
	rules := func(verbs string) auth.Config {
		r, err := auth.ParseRule(verbs + " stream:*")
		if err != nil {
			t.Fatal(err)
		}
		return auth.Config{Token: auth.TokenConfig{Audience: "tidewire"}, Keys: []auth.Key{key}, Rules: []auth.RoleRule{{Role: "user", Allow: []auth.Rule{r}}}}
	}
	for _, one := range []struct{ name, state, code string }{{"stop", "stopped", ""}, {"right lost", "failed", "forbidden"}, {"neither", "done", ""}} {
		t.Run(one.name, func(t *testing.T) {
			t.Parallel()
			policy, err := auth.NewPolicy(rules("read,publish"))
			if err != nil {
				t.Fatal(err)
			}
			streams, log := filledStreams(t, 1200, "copy"), &lines{}
			c := serveClosed(t, func(cfg *gateway.Config) {
				cfg.Engine.Streams, cfg.Auth.Policy, cfg.Audit = replayStreams{streams}, policy, slog.New(slog.NewJSONHandler(log, nil))
			})
			h, token := client{t, c.addr}, []string{"Authorization", "Bearer " + tokenOf(t, "u1", time.Hour)}
			streams.hold(true) // no commit until then
			_, text := h.do("POST", "/v1/streams/orders/replay", `{"to_stream":"copy"}`, token...)
			var a replayAnswer
			if err := json.Unmarshal([]byte(text), &a); err != nil || a.State != "running" {
				t.Fatal(text, err)
			}
			waitFor(t, func() bool {
				streams.mu.Lock()
				defer streams.mu.Unlock()
				return len(streams.waiting) > 0
			}, "the replay does not begin")
			switch one.name {
			case "stop":
				h.do("DELETE", "/v1/streams/orders/jobs/"+a.Job, "", token...)
			case "right lost":
				if err := policy.Reload(rules("read")); err != nil {
					t.Fatal(err)
				}
			}
			streams.hold(false)
			end := map[string]any{}
			waitFor(t, func() bool {
				for _, line := range log.all(t) {
					if line["msg"] == "replay" {
						end = line
					}
				}
				return len(end) > 0
			}, "no end")
			code, _ := end["code"].(string)
			if end["state"] != one.state || code != one.code || end["replay"] != a.Replay || end["done"] != (one.state == "done") {
				t.Errorf("%v, want %s %s", end, one.state, one.code)
			}
			streams.state.Lock()
			defer streams.state.Unlock()
			if stored := len(streams.streams["copy"].messages); end["after"] != float64(stored) || one.state != "done" && stored == 1200 {
				t.Errorf("%v, and %d messages are stored", end, stored)
			}
		})
	}
}
