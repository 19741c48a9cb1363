package gateway_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/gateway"
)

// startReplay starts a replay of orders that does not end, because nothing is committed.
func startReplay(t *testing.T, h client, body string, headers ...string) replayAnswer {
	t.Helper()
	var a replayAnswer
	_, text := h.do("POST", "/v1/streams/orders/replay", body, headers...)
	if err := json.Unmarshal([]byte(text), &a); err != nil || a.State != "running" {
		t.Fatal(text, err)
	}
	return a
}

// TestReplay_OfFunction: a user whose right to write to the target is from the SQL function sees its replay, and can stop it. Others do not.
func TestReplay_OfFunction(t *testing.T) {
	t.Parallel()
	streams := filledStreams(t, 1200, "asked")
	c, _ := guarded(t, func(cfg *gateway.Config) { cfg.Engine = engine.Engine{Streams: replayStreams{streams}} })
	h := client{t, c.addr}
	own := []string{"Authorization", "Bearer " + tokenOf(t, "ann", time.Hour, "read stream:orders")}
	other := []string{"Authorization", "Bearer " + tokenOf(t, "bob", time.Hour, "read stream:orders")}
	streams.hold(true)
	job := "/v1/streams/orders/jobs/" + startReplay(t, h, `{"to_stream":"asked"}`, own...).Job
	for _, method := range []string{"GET", "DELETE"} {
		if status, text := h.do(method, job, "", other...); status != http.StatusNotFound {
			t.Errorf("another user: %s %d %s", method, status, text)
		}
		if status, text := h.do(method, job, "", own...); status != http.StatusOK {
			t.Errorf("its user: %s %d %s", method, status, text)
		}
	}
	streams.hold(false)
	waitFor(t, func() bool {
		_, text := h.do("GET", job, "", own...)
		return strings.Contains(text, `"state":"stopped"`)
	}, "the replay does not stop")
}

// TestReplay_Many: one user, who need be no administrator, does not keep others from starting jobs.
func TestReplay_Many(t *testing.T) {
	t.Parallel()
	streams := filledStreams(t, 1200, "copy")
	c := serveClosed(t, func(cfg *gateway.Config) { cfg.Engine.Streams = replayStreams{streams} })
	h := client{t, c.addr}
	as := func(user string) []string {
		return []string{"Authorization", "Bearer " + tokenOf(t, user, time.Hour, "read stream:orders", "publish stream:copy")}
	}
	streams.hold(true)
	defer streams.hold(false)
	for range 2 {
		startReplay(t, h, `{"to_stream":"copy"}`, as("ann")...)
	}
	if status, text := h.do("POST", "/v1/streams/orders/replay", `{"to_stream":"copy"}`, as("ann")...); status != http.StatusTooManyRequests || !strings.Contains(text, "too_many_jobs") {
		t.Errorf("a third replay of a user: %d %s", status, text)
	}
	startReplay(t, h, `{"to_stream":"copy"}`, as("bob")...)
}
