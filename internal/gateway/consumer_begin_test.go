package gateway_test

import (
	"fmt"
	"testing"
)

// TestConsume_Begin: of a consumer that says what it begins, only that is an attempt when its connection ends.
func TestConsume_Begin(t *testing.T) {
	t.Parallel()
	_, _, _, addr := serveAll(t)
	c, other := connect(t, addr), connect(t, addr)
	if got := c.code(`{"type":"begin","id":"x","queue":"jobs","delivery":"never"}`); got != "not_consuming" {
		t.Error(got)
	}
	jobs(t, c, 4)
	c.ask(`{"type":"consume","id":1,"queue":"jobs","begin":true}`, `{"type":"ok","id":1}`)
	var tokens []string
	for range 4 {
		d := c.delivery()
		if d.Attempt != 1 {
			t.Errorf("attempt %d, want 1", d.Attempt)
		}
		tokens = append(tokens, d.Delivery)
	}
	send(t, c.socket, fmt.Sprintf(`{"type":"begin","queue":"jobs","deliveries":[%q]}`, tokens[0]))
	c.ask(fmt.Sprintf(`{"type":"begin","id":2,"queue":"jobs","delivery":%q}`, tokens[2]), `{"type":"ok","id":2,"count":1}`)
	for range 2 { // a second time does nothing
		c.ask(fmt.Sprintf(`{"type":"begin","id":2,"queue":"jobs","deliveries":[%q,%q]}`, tokens[0], tokens[2]), `{"type":"ok","id":2,"count":2}`)
	}
	c.ask(fmt.Sprintf(`{"type":"ack","id":3,"queue":"jobs","delivery":%q}`, tokens[2]), `{"type":"ok","id":3,"count":1}`)
	c.ask(fmt.Sprintf(`{"type":"begin","id":4,"queue":"jobs","deliveries":[%q,%q]}`, tokens[2], tokens[3]),
		fmt.Sprintf(`{"type":"error","id":4,"code":"lease_lost","message":"the leases of some deliveries have ended, or were never this caller's: see lost","retryable":false,"count":1,"lost":[%q]}`, tokens[2]))
	c.Abort()
	other.ask(`{"type":"consume","id":1,"queue":"jobs"}`, `{"type":"ok","id":1}`)
	attempts := make(map[int64]int)
	for range 3 {
		d := other.delivery()
		attempts[d.Position] = d.Attempt
	}
	if got, want := fmt.Sprint(attempts), "map[1:2 2:1 4:2]"; got != want {
		t.Errorf("attempts by position %s, want %s", got, want)
	}
}
