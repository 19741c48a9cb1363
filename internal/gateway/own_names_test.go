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
