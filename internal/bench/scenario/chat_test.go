package scenario

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/bench"
	"github.com/tidewire/tidewire/websocket"
)

// crowd is a chat server that skips one in leaveOut deliveries, and delays each
// chat.
type crowd struct {
	leaveOut int // 0: nothing
	late     time.Duration

	mu         sync.Mutex
	members    map[*websocket.Conn]bool
	deliveries int
	ending     sync.WaitGroup
}

// newCrowd returns its URL.
func newCrowd(t *testing.T, leaveOut int, late time.Duration) string {
	t.Helper()
	s := &crowd{leaveOut: leaveOut, late: late, members: make(map[*websocket.Conn]bool)}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, err := websocket.Upgrade(w, r, websocket.Config{}); err == nil {
			s.ending.Go(func() { s.serve(c) })
		}
	}))
	t.Cleanup(func() {
		server.Close()
		s.ending.Wait()
	})
	return "ws" + strings.TrimPrefix(server.URL, "http")
}

func (s *crowd) serve(c *websocket.Conn) {
	for {
		messages, err := c.Read()
		for _, m := range messages {
			s.handle(c, m.Payload)
		}
		if err != nil {
			s.mu.Lock()
			delete(s.members, c)
			s.mu.Unlock()
			c.Close(websocket.StatusNormal, "")
			return
		}
	}
}

func (s *crowd) handle(from *websocket.Conn, payload []byte) {
	if bytes.Contains(payload, []byte(`"chat"`)) {
		time.Sleep(s.late)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case bytes.Contains(payload, []byte(`"join"`)):
		s.members[from] = true
	case bytes.Contains(payload, []byte(`"ping"`)):
		from.Queue(websocket.OpText, []byte(`{"type":"pong"}`))
		from.Flush()
	case bytes.Contains(payload, []byte(`"leave"`)):
		delete(s.members, from)
	default:
		for other := range s.members {
			if s.deliveries++; other == from || s.leaveOut > 0 && s.deliveries%s.leaveOut == 0 {
				continue
			}
			other.Queue(websocket.OpText, payload)
			other.Flush()
		}
	}
}

func runChat(t *testing.T, targets ...Target) (*bench.Result, error) {
	t.Helper()
	result := bench.NewResult("chat-steady", nil)
	err := Chat(t.Context(), ChatConfig{Targets: targets, Scenario: "steady", Scale: 0.03, Share: 0.1, Repeat: 1, Progress: t.Logf}, result)
	result.Finish()
	return result, err
}

func TestChat_LossIsAContendersResult(t *testing.T) {
	t.Parallel()
	lossy, late := newCrowd(t, 10, 0), newCrowd(t, 0, 50*time.Millisecond)
	labels := map[string]string{"target": "lossy", "language": "Go", "profile": "minimal"}
	result, err := runChat(t, Target{Name: "lossy", URL: lossy, Labels: labels}, Target{Name: "late", URL: late})
	if err != nil {
		t.Fatal(err)
	}
	m := result.Row("lossy").Metrics
	if !result.Valid || m["lost"] == 0 || m["drop_rate"] == 0 || m["received"]+m["lost"] < m["expected"] || m["offered"] != m["sent"]+m["unsent"] {
		t.Errorf("valid %v, want true, and losses in %v", result.Valid, m)
	}
	if result.Row("lossy").Labels["profile"] != "minimal" {
		t.Errorf("labels %v", result.Row("lossy").Labels)
	}
	if m := result.Row("late").Metrics; m["latency_p50_ms"] < 50 || m["lost"] != 0 {
		t.Errorf("it answers after 50 ms: %v", m)
	}
}

func TestChat_LossIsTidewiresFault(t *testing.T) {
	t.Parallel()
	result, err := runChat(t, Target{Name: "tidewire", URL: newCrowd(t, 10, 0), Own: true})
	if err != nil || result.Valid {
		t.Errorf("Tidewire's losses: %v, valid %v, want false", err, result.Valid)
	}
}

// refused is a target that does not start.
func refused(name string, own bool) Target {
	return Target{Name: name, Own: own, Start: func(context.Context) (*ServerProcess, error) {
		return nil, errors.New("server ended before it was ready:\n out of luck")
	}}
}

func TestChat_WhoFailsGetsANoteAndTheOthersGoOn(t *testing.T) {
	t.Parallel()
	missing := Target{Name: "absent", Missing: "not built: needs cargo"}
	good := Target{Name: "good", URL: newCrowd(t, 0, 0)}
	result, err := runChat(t, missing, refused("broken", false), good)
	if err != nil || !result.Valid || result.Row("good").Metrics["deliveries"] == 0 {
		t.Errorf("%v, valid %v: %+v", err, result.Valid, result.Rows)
	}
	for name, note := range map[string]string{"absent": "not built: needs cargo", "broken": "failed: server ended before it was ready: out of luck"} {
		if row := result.Row(name); row.Note != note || len(row.Metrics) != 0 {
			t.Errorf("%s: note %q, want %q; metrics %v", name, row.Note, note, row.Metrics)
		}
	}
	if result, err := runChat(t, refused("tidewire", true), good); err != nil || result.Valid {
		t.Errorf("Tidewire failed: %v, valid %v, want false", err, result.Valid)
	}
	if _, err := runChat(t, missing, refused("broken", false)); err == nil || !strings.Contains(err.Error(), "needs cargo") || !strings.Contains(err.Error(), "out of luck") {
		t.Errorf("nothing was measured: %v, want an error with both reasons", err)
	}
}

// TestChat_BrokenOffIsNoted uses a server that prints that it listens, and then ends.
func TestChat_BrokenOffIsNoted(t *testing.T) {
	t.Parallel()
	result, err := runChat(t, Target{Name: "short", Start: func(ctx context.Context) (*ServerProcess, error) {
		return StartServer(ctx, nil, nil, "sh", "-c", "echo 'listening on :1'; exit 3")
	}}, Target{Name: "good", URL: newCrowd(t, 0, 0)})
	if err != nil || !result.Valid {
		t.Errorf("%v, valid %v", err, result.Valid)
	}
	if note := result.Row("short").Note; !strings.Contains(note, "no client could connect") || !strings.Contains(note, "exit status 3") {
		t.Errorf("note %q", note)
	}
}

func TestChatPlan_OneServerForEachRow(t *testing.T) {
	t.Parallel()
	for scenario, want := range map[string][]int{"steady": {1}, "saturation": {1, 1, 1}} {
		var got []int
		for _, steps := range (ChatConfig{Scenario: scenario, Scale: 1, Share: 1}).plan() {
			got = append(got, len(steps))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v loads a row, want %v", scenario, got, want)
		}
	}
	custom := ChatConfig{Scenario: "load", Custom: &ChatLoad{Clients: 10, Rate: 20, Hold: time.Second}, Scale: 0.5, Share: 0.2}.plan()
	if load := custom[0][0].load; load.Clients != 2 || load.Hold != time.Second/2 || load.Rate != 20 {
		t.Errorf("a scaled load is %+v", load)
	}
	soak := ChatConfig{Scenario: "burst", Soak: 2 * time.Minute, Scale: 1, Share: 1}
	if plan := soak.plan(); len(plan) != 1 || len(plan[0]) < 5 {
		t.Errorf("%d rows: want one of several bursts", len(plan))
	}
}
