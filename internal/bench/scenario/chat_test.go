package scenario

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/bench"
	"github.com/tidewire/tidewire/internal/bench/internal/faulty"
)

// runChat measures targets with a small load.
func runChat(t *testing.T, targets ...Target) (*bench.Result, error) {
	t.Helper()
	result := bench.NewResult("chat-load", nil)
	err := Chat(t.Context(), ChatConfig{
		Targets: targets, Repeat: 1, Scale: 1, Share: 1, Progress: t.Logf, Custom: &ChatLoad{Clients: 5, Rate: 10, Payload: 128, Hold: 300 * time.Millisecond},
	}, result)
	result.Finish()
	return result, err
}

// honestChat is a target without a fault.
func honestChat(t *testing.T) Target {
	server := faulty.Chat(faulty.Honest)
	t.Cleanup(server.Close)
	return Target{Name: "good", URL: server.URL}
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
	good := honestChat(t)
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
		s, err := StartServer(ctx, nil, nil, "sh", "-c", "echo 'listening on :1'; exit 3")
		if err == nil {
			s.done <- <-s.done // it has ended
		}
		return s, err
	}}, honestChat(t))
	if err != nil || !result.Valid {
		t.Errorf("%v, valid %v", err, result.Valid)
	}
	if note := result.Row("short").Note; !strings.Contains(note, "no client could connect") || !strings.Contains(note, "exit status 3") {
		t.Errorf("note %q", note)
	}
}
