package access_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/tidewire/tidewire/internal/access"
	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/websocket"
)

// receive takes deliveries of the queue jobs by HTTP.
func (n node) receive(token string, most int) (ids []string) {
	n.t.Helper()
	r, err := http.NewRequestWithContext(n.t.Context(), "POST", fmt.Sprintf("http://%s/v1/queues/jobs/receive?max=%d&wait_ms=20000", n.url, most), nil)
	if err != nil {
		n.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		n.t.Fatal(err)
	}
	defer resp.Body.Close()
	var got struct{ Deliveries []struct{ Delivery string } }
	if err := json.NewDecoder(resp.Body).Decode(&got); err != nil || resp.StatusCode != http.StatusOK {
		n.t.Fatalf("receive: %s, %v", resp.Status, err)
	}
	for _, d := range got.Deliveries {
		ids = append(ids, d.Delivery)
	}
	return ids
}

// TestKeys_RevokedWithDeliveriesOut: a key is revoked while 2,000 deliveries are out. It settles none of them, and neither does another key of the same name or of another.
func TestKeys_RevokedWithDeliveriesOut(t *testing.T) {
	t.Parallel()
	n := startNode(t, migrated.Open(t).URL, "")
	admin := token(t, "ops", nil, "admin,enqueue queue:*", "admin stream:*")
	if got := n.http("POST", "/v1/queues/jobs", "", admin); got != "200" {
		t.Fatalf("create: %s", got)
	}
	const out, batch = 2000, 1000
	messages := `{"messages":[` + strings.Repeat(`{"payload":"x"},`, batch-1) + `{"payload":"x"}]}`
	for range out/batch + 1 {
		if got := n.http("POST", "/v1/queues/jobs/messages", messages, admin); got != "200" {
			t.Fatalf("enqueue: %s", got)
		}
	}
	id, key := n.key("desk", 0, "consume queue:jobs")
	_, other := n.key("other", 0, "consume queue:jobs")
	n.await("POST", "/v1/queues/jobs/receive?max=1&wait_ms=0", other, "200")
	var held []string
	for len(held) < out {
		held = append(held, n.receive(key, min(batch, out-len(held)))...)
	}
	if err := access.RevokeKey(t.Context(), n.pool, slog.New(slog.DiscardHandler), "test", id); err != nil {
		t.Fatal(err)
	}
	n.await("GET", "/v1/queues", key, "401 invalid_token")
	for i := 0; i < len(held); i += 97 {
		for kind, callers := range map[string][]string{"ack": {key, other}, "nack": {key, other}, "extend": {key, other}} {
			lease := map[string]string{"extend": `,"lease_ms":1000`}[kind]
			body := fmt.Sprintf(`{"delivery":%q%s}`, held[i], lease)
			for c, want := range []string{"401 invalid_token", "409 lease_lost"} {
				if got := n.http("POST", "/v1/queues/jobs/"+kind, body, callers[c]); got != want {
					t.Fatalf("%s of delivery %d: %s, want %s", kind, i, got, want)
				}
			}
		}
	}
}

// TestTokens_FewerRightsInACatchUp: a token with fewer rights comes in the middle of a long catch-up. After its answer there is no message more.
func TestTokens_FewerRightsInACatchUp(t *testing.T) {
	t.Parallel()
	n := startNode(t, migrated.Open(t).URL, "")
	admin := token(t, "ops", nil, "publish stream:*")
	stored := 20_000
	if pgtest.Seeds() >= 10 {
		stored = 1_000_000
	}
	const batch = 1000
	payload := strings.Repeat("x", 500)
	messages := `{"messages":[` + strings.Repeat(`{"payload":"`+payload+`"},`, batch-1) + `{"payload":"` + payload + `"}]}`
	for range stored / batch {
		if got := n.http("POST", "/v1/streams/orders/messages", messages, admin); got != "200" {
			t.Fatalf("publish: %s", got)
		}
	}
	w := n.connect(token(t, "ann", nil, "read stream:orders"))
	if got := w.ask(`"type":"subscribe","stream":"orders","after":0`); got != "ok" {
		t.Fatalf("subscribe: %s", got)
	}
	before := 0
	for before < stored/20 {
		if codeOf(w.next()) == "message" {
			before++
		}
	}
	w.Queue(websocket.OpText, fmt.Appendf(nil, `{"id":2,"type":"auth","token":%q}`, token(t, "ann", nil, "read stream:other")))
	w.Flush()
	for renewed := false; ; {
		text := w.next()
		switch got := codeOf(text); {
		case got == "message" && renewed:
			t.Fatal("a message came after the new token was accepted")
		case got == "message":
			before++
		case got == "ok":
			renewed = true
		case got == "forbidden": // the subscription has ended
			if before == stored {
				t.Error("the catch-up was over before the new token came: the test shows nothing")
			}
			if got := w.ask(`"type":"ping"`); got == "message" {
				t.Error("a message came after the end of the subscription")
			}
			return
		default:
			t.Fatalf("got %s", text)
		}
	}
}
