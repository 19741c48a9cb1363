package gateway_test

import (
	"encoding/json"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidewire/tidewire/internal/gateway"
	"github.com/tidewire/tidewire/internal/testkit"
)

// lines is a log in JSON.
type lines struct{ testkit.Log }

func (l *lines) all(t *testing.T) (all []map[string]any) {
	for line := range strings.Lines(l.String()) {
		var fields map[string]any
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		all = append(all, fields)
	}
	return all
}

// TestAudit: what a caller was denied, and what it administered, is recorded with its user and what it was about, on both doors.
func TestAudit(t *testing.T) {
	t.Parallel()
	log, metrics := &lines{}, prometheus.NewRegistry()
	c := serveClosed(t, func(cfg *gateway.Config) {
		cfg.Audit, cfg.Metrics = slog.New(slog.NewJSONHandler(log, nil)), metrics
	})
	ann := tokenOf(t, "ann", time.Hour, "admin stream:new", "admin queue:fresh", "admin stream:fresh", "admin room:a")
	for _, d := range []struct{ method, path, body, token, want string }{
		{"POST", "/v1/streams/new", "{}", ann, "200"},
		{"DELETE", "/v1/streams/new", "", ann, "200"},
		{"POST", "/v1/queues/fresh", "{}", ann, "200"},
		{"POST", "/v1/rooms/a/kick", `{"user":"bob"}`, ann, "200"},
		{"GET", "/v1/streams/secret", "", ann, "403 forbidden"},
		{"GET", "/v1/streams/secret", "", "", "401 unauthenticated"},
		{"GET", "/v1/streams/secret", "", "wrong", "401 invalid_token"},
	} {
		if got := c.status(d.method, d.path, d.body, d.token); got != d.want {
			t.Errorf("%s %s: %s, want %s", d.method, d.path, got, d.want)
		}
	}
	w := c.as("/ws", ann)
	w.code(`{"id":"x","type":"subscribe","stream":"secret"}`)
	w.code(`{"id":"x","type":"join","room":"dm"}`)
	w.code(`{"id":"x","type":"auth","token":"wrong"}`)
	got := make([]string, 0)
	for _, line := range log.all(t) {
		if line["peer"] == "" {
			t.Errorf("no peer in %v", line)
		}
		if reason, _ := line["reason"].(string); (reason != "") != (line["code"] == "invalid_token") {
			t.Errorf("the reason %q in %v", reason, line)
		}
		var fields []string
		for _, name := range []string{"msg", "user", "code", "verb", "kind", "name", "act", "target"} {
			if v, ok := line[name]; ok {
				fields = append(fields, v.(string))
			}
		}
		got = append(got, strings.Join(fields, " "))
	}
	want := []string{
		"administrative act ann create stream new", "administrative act ann drop stream new", "administrative act ann create queue fresh", "administrative act ann kick user from room a bob",
		"denied ann forbidden read stream secret", "denied unauthenticated", "denied invalid_token", "denied ann forbidden read stream secret",
		"denied ann forbidden join room dm", "denied ann invalid_token",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if n := counted(t, metrics, "tidewire_denials_total"); n != 6 {
		t.Errorf("%v denials counted, want 6", n)
	}
	if n := counted(t, metrics, "tidewire_admin_acts_total"); n != 4 {
		t.Errorf("%v acts counted, want 4", n)
	}
}

// counted is the sum of a counter's values.
func counted(t *testing.T, from prometheus.Gatherer, name string) (sum float64) {
	t.Helper()
	families, err := from.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			for _, m := range f.GetMetric() {
				sum += m.GetCounter().GetValue()
			}
		}
	}
	return sum
}
