package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/gateway"
)

// worstStreams have a group each, which has as much to read as their number says.
type worstStreams struct {
	engine.Streams
	names int
	asked *atomic.Int64
}

func (f worstStreams) List(context.Context) (all []engine.StreamInfo, err error) {
	for i := range f.names {
		all = append(all, engine.StreamInfo{Name: fmt.Sprintf("s%03d", i)})
	}
	return append(all, engine.StreamInfo{Name: "tidewire.rooms"}), nil
}

func (f worstStreams) Groups(_ context.Context, name, _ string, limit int) ([]engine.GroupInfo, error) {
	f.asked.Add(1)
	var n int64
	if _, err := fmt.Sscanf(name, "s%d", &n); err != nil || limit > 100 {
		return nil, fmt.Errorf("%s, %d groups", name, limit)
	}
	return []engine.GroupInfo{{Name: "none"}, {Name: "g", Lag: n}}, nil
}

type worstQueues struct {
	engine.Queues
	asked *atomic.Int64
}

func (worstQueues) List(context.Context) ([]string, error) {
	return []string{"idle", "old", "dead"}, nil
}
func (f worstQueues) Stats(_ context.Context, name string) (engine.QueueStats, error) {
	f.asked.Add(1)
	return map[string]engine.QueueStats{"old": {Oldest: 70_000, Ready: 3}, "dead": {Dead: 9}}[name], nil
}

// TestOverview_Worst: the worst are found only for those who ask for them, with few questions to the store, and nobody is told what it may not see.
func TestOverview_Worst(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	c := serveClosed(t, func(cfg *gateway.Config) {
		cfg.Engine.Streams, cfg.Engine.Queues = worstStreams{names: 20, asked: &asked}, worstQueues{asked: &asked}
	})
	h := client{t, c.addr}
	ask := func(query string, rights ...string) (a struct{ Group, Queue map[string]any }) {
		t.Helper()
		status, text := h.do("GET", "/v1/overview"+query, "", "Authorization", "Bearer "+tokenOf(t, "u", time.Hour, append(rights, "metrics server:*")...))
		if err := json.Unmarshal([]byte(text), &a); err != nil || status != http.StatusOK {
			t.Fatalf("%d %s %v", status, text, err)
		}
		return a
	}
	if a := ask("", "read stream:**"); a.Group != nil || asked.Load() != 0 {
		t.Errorf("nobody has asked: %v, %d questions", a, asked.Load())
	}
	for range 20 {
		a := ask("?worst=true", "read stream:**", "inspect queue:**")
		if a.Group["stream"] != "s019" || a.Group["group"] != "g" || a.Group["lag"] != 19.0 || a.Queue["queue"] != "old" || a.Queue["ready"] != 3.0 {
			t.Fatalf("%v", a)
		}
	}
	if n := asked.Load(); n > 2*25 { // two looks, if this takes 5 s
		t.Errorf("%d questions to the store", n)
	}
	if a := ask("?worst=true", "read stream:s00*", "inspect queue:dead"); a.Group["stream"] != "s009" || a.Queue["queue"] != "dead" {
		t.Errorf("what the caller may see: %v", a)
	}
	if a := ask("?worst=true", "publish,commit stream:**", "enqueue,consume queue:**"); a.Group != nil || a.Queue != nil {
		t.Errorf("what it may not ask for itself: %v", a)
	}
	if status, text := h.do("GET", "/v1/overview?worst=no", "", "Authorization", "Bearer "+tokenOf(t, "u", time.Hour, "metrics server:*")); status != http.StatusBadRequest {
		t.Errorf("%d %s", status, text)
	}
}
