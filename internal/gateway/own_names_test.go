package gateway_test

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestAuth_NamesBelongToUsers: the sequences of a client and the unique keys of one user are not those of another, on both doors.
func TestAuth_NamesBelongToUsers(t *testing.T) {
	t.Parallel()
	c := serveClosed(t, nil)
	long := strings.Repeat("c", 128)
	for _, d := range []struct{ ws, path, body string }{
		{`"type":"publish","stream":"orders"`, "/v1/streams/orders/messages", `"payload":"x","client":"p","sequence":1`},
		{`"type":"publish","stream":"orders"`, "/v1/streams/orders/messages", `"payload":"x","client":"` + long + `","sequence":1`},
		{`"type":"enqueue","queue":"jobs"`, "/v1/queues/jobs/messages", `"payload":"x","unique_key":"k","unique_ms":60000`},
	} {
		seen := make(map[string]bool)
		for _, user := range []string{"ann", "bob", strings.Repeat("u", 128)} {
			token := tokenOf(t, user, time.Hour, "publish stream:orders", "enqueue queue:jobs")
			w := c.as("/ws", token)
			send(t, w.socket, `{"id":1,`+d.ws+`,`+d.body+`}`)
			first := w.next()
			if strings.Contains(first, "duplicate") || !strings.Contains(first, "position") || seen[first] {
				t.Errorf("%s's first request: %s", user, first)
			}
			seen[first] = true
			_, again := client{t, c.addr}.do("POST", d.path, `{`+d.body+`}`, "Content-Type", "application/json", "Authorization", "Bearer "+token)
			var position int
			if _, err := fmt.Sscanf(first, `{"type":"ok","id":1,"position":%d`, &position); err != nil {
				t.Fatal(first, err)
			}
			if !strings.Contains(again, `"duplicate":true`) || !strings.Contains(again, fmt.Sprintf(`"position":%d,`, position)) {
				t.Errorf("%s's request again: %s, want a duplicate of %d", user, again, position)
			}
		}
	}
}

// TestAuth_EventIDs: a caller that may append events of some tags cannot take the ids of others.
func TestAuth_EventIDs(t *testing.T) {
	t.Parallel()
	c := serveClosed(t, nil)
	for _, d := range []struct{ right, event, want string }{
		{"append events:default", `"tags":["tenant:a"],"id":"x"`, "ok"},
		{"append events:default#tenant:a", `"tags":["tenant:a"]`, "ok"},
		{"append events:default#tenant:a", `"tags":["tenant:a"],"id":"tenant:a/x"`, "ok"},
		{"append events:default#tenant:*", `"tags":["x","tenant:b"],"id":"tenant:b/y"`, "ok"},
		{"append events:default#tenant:a", `"tags":["tenant:a"],"id":"x"`, "forbidden"},
		{"append events:default#tenant:a", `"tags":["tenant:a","tenant:b"],"id":"tenant:b/x"`, "forbidden"},
		{"append events:default#tenant:a", `"tags":["tenant:a"],"id":"tenant:a"`, "forbidden"},
		{"append events:default#tenant:*", `"tags":["tenant:a"],"id":"tenant:b/y"`, "forbidden"},
		{"append events:default#tenant:a#kind:x", `"tags":["tenant:a","kind:x"],"id":"tenant:a/z"`, "ok"},
		{"append events:default#tenant:a#kind:x", `"tags":["tenant:a","kind:x"],"id":"kind:x/z"`, "forbidden"},
	} {
		token := tokenOf(t, "ann", time.Hour, d.right)
		body := `"events":[{"type":"A",` + d.event + `}]`
		w := c.as("/ws", token)
		if got := strings.TrimPrefix(w.code(`{"id":"x","type":"append",`+body+`}`), "error"); got != d.want {
			t.Errorf("%s, %s on /ws: %s, want %s", d.right, d.event, got, d.want)
		}
		want := map[string]string{"ok": "200", "forbidden": "403 forbidden"}[d.want]
		if got := c.status("POST", "/v1/events", `{`+body+`}`, token); got != want {
			t.Errorf("%s, %s by HTTP: %s, want %s", d.right, d.event, got, want)
		}
	}
	if _, text := (client{t, c.addr}).do("POST", "/v1/events", `{"events":[{"type":"A","tags":["t:1"],"id":"x"}]}`, "Content-Type", "application/json",
		"Authorization", "Bearer "+tokenOf(t, "ann", time.Hour, "append events:default#t:1")); !strings.Contains(text, "events[0].id: want it to begin with the tag") {
		t.Errorf("got %s", text)
	}
}
