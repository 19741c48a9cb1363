package gateway_test

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/tidewire/tidewire/internal/wire/spec"
)

// TestExamples_AreAccepted: a server takes each example of a request. It may miss what the example names, or have nothing to end or to
// settle; but the message is right.
func TestExamples_AreAccepted(t *testing.T) {
	t.Parallel()
	fine := []string{"", "not_found", "lease_lost", "not_consuming", "not_subscribed", "not_joined"}
	addr := serveCanned(t).addr
	for _, r := range spec.Requests() {
		for _, e := range r.Examples() {
			c := connect(t, addr)
			send(t, c.socket, string(e.Payload))
			if r.Type == "pong" { // it has no answer
				send(t, c.socket, `{"type":"ping"}`)
			}
			var got struct {
				Type, Code string
				ID         any
			}
			for got.ID == nil && got.Type != "pong" {
				if err := json.Unmarshal([]byte(c.next()), &got); err != nil {
					t.Fatal(err)
				}
			}
			if !slices.Contains(fine, got.Code) {
				t.Errorf("%s: %s", e.Payload, got.Code)
			}
		}
	}
}
