package gateway_test

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/gateway"
)

// TestRequestID: each answer names its request: as the client did, if that is usable. The audit log has it, too.
func TestRequestID(t *testing.T) {
	t.Parallel()
	log := &lines{}
	c := serveClosed(t, func(cfg *gateway.Config) { cfg.Audit = slog.New(slog.NewJSONHandler(log, nil)) })
	ask := func(method, path, token, id string) string {
		t.Helper()
		resp, _ := client{t, c.addr}.fetch(method, path, "", "X-Request-Id", id, "Authorization", "Bearer "+token)
		return resp.Header.Get("X-Request-Id")
	}
	ann := tokenOf(t, "ann", time.Hour, "admin stream:new")
	long := strings.Repeat("~", 128)
	for _, usable := range []string{"a", "7b/!", long} {
		if got := ask("GET", "/v1/streams/secret", ann, usable); got != usable {
			t.Errorf("%q is answered with %q", usable, got)
		}
	}
	for _, unusable := range []string{"", long + "~", "two words", "\x80", "é"} {
		if got := ask("GET", "/healthz", "", unusable); got == unusable || len(got) < 16 {
			t.Errorf("%q is answered with %q", unusable, got)
		}
	}
	if got := ask("POST", "/v1/streams/new", ann, "made"); got != "made" {
		t.Errorf("an act is answered with %q", got)
	}
	ask("GET", "/v1/streams", "wrong", "unknown")
	found := map[any]string{}
	for _, line := range log.all(t) {
		found[line["request_id"]] = line["msg"].(string)
	}
	for id, msg := range map[string]string{"a": "denied", "made": "administrative act", "unknown": "denied"} {
		if found[id] != msg {
			t.Errorf("%s: the audit log has %q, want %q", id, found[id], msg)
		}
	}
}
