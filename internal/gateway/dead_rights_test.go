package gateway_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/auth"
	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/gateway"
)

// endlessDead are queues whose dead letters never end. Each step of a job takes a turn.
type endlessDead struct {
	replayQueues
	turns chan struct{}
}

func (f endlessDead) PurgeDeadStep(ctx context.Context, _ string, _ engine.DeadFilter, after int64, _ int) (engine.DeadStep, error) {
	select {
	case f.turns <- struct{}{}:
	case <-ctx.Done():
	}
	return engine.DeadStep{Changed: 1, Next: after + 1}, ctx.Err()
}

// TestDead_RightLost: a job goes no further when its user has lost the right to administer the queue, and the audit log says so.
func TestDead_RightLost(t *testing.T) {
	t.Parallel()
	key, err := auth.NewSecret("", tokenSecret)
	if err != nil {
		t.Fatal(err)
	}
	rules := func(text string) auth.Config {
		return auth.Config{Token: auth.TokenConfig{Audience: "tidewire"}, Keys: []auth.Key{key}, Rules: []auth.RoleRule{{Role: "user", Allow: rulesFor(t, text)}}}
	}
	policy, err := auth.NewPolicy(rules("admin,inspect queue:jobs"))
	if err != nil {
		t.Fatal(err)
	}
	turns, log := make(chan struct{}), &lines{}
	c := serveClosed(t, func(cfg *gateway.Config) {
		cfg.Auth.Policy, cfg.Engine.Queues = policy, endlessDead{replayQueues{newFakeQueues(t, "jobs")}, turns}
		cfg.Audit = slog.New(slog.NewJSONHandler(log, nil))
	})
	h, token := client{t, c.addr}, []string{"Authorization", "Bearer " + tokenOf(t, "ann", time.Hour)}
	var a replayAnswer
	_, text := h.do("POST", "/v1/queues/jobs/dead/purge", `{"all":true}`, token...)
	if err := json.Unmarshal([]byte(text), &a); err != nil || a.State != "running" {
		t.Fatal(text, err)
	}
	<-turns
	if err := policy.Reload(rules("inspect queue:jobs")); err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() bool {
		select {
		case <-turns: // of a step that had begun
		default:
		}
		_, text = h.do("GET", "/v1/queues/jobs/jobs/"+a.Job, "", token...)
		return strings.Contains(text, `"state":"failed"`) && strings.Contains(text, `"error":"forbidden"`)
	}, "the job goes on")
	waitFor(t, func() bool {
		all := log.all(t)
		end := all[len(all)-1]
		return end["msg"] == "job ended" && end["job"] == a.Job && end["state"] == "failed" && end["code"] == "forbidden" && end["changed"].(float64) >= 1
	}, "the audit log has no end of it")
}
