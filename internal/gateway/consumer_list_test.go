package gateway_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/gateway"
	"github.com/tidewire/tidewire/internal/testkit"
)

// listedConsumer is what a list tells of a consumer.
type listedConsumer struct {
	Node, Connection, User, Client string
	Began                          time.Time
	Credits                        int64
	Unsettled                      int
}

type consumersAnswer struct {
	Consumers []listedConsumer
	Total     int
	Silent    []string
}

// text is a list without what differs from run to run.
func (a consumersAnswer) text() string {
	lines := []string{}
	for _, c := range a.Consumers {
		kind := "http"
		if c.Connection != "" {
			kind = "ws"
		}
		lines = append(lines, strings.TrimSpace(fmt.Sprintf("%s %s %s %d/%d %s", c.Node, kind, c.User, c.Unsettled, c.Credits, c.Client)))
	}
	return fmt.Sprintf("%d %v: %s", a.Total, a.Silent, strings.Join(lines, "; "))
}

func (c client) consumers(queue, token string) (a consumersAnswer) {
	c.t.Helper()
	c.get(&a, "GET", "/v1/queues/"+queue+"/consumers", "", token)
	return a
}

// TestConsumers: the consumers of a queue are those of its connections and of its HTTP clients, on all servers that answer, as long as they consume.
func TestConsumers(t *testing.T) {
	t.Parallel()
	there := serveClosed(t, func(cfg *gateway.Config) { cfg.Nodes = named{others{}, "there"} })
	here := serveClosed(t, func(cfg *gateway.Config) {
		cfg.Nodes = others{map[string]*gateway.Server{"there": there.server, "deaf": nil}}
	})
	look := tokenOf(t, "op", time.Hour, "inspect queue:jobs")
	ann, bob := tokenOf(t, "ann", time.Hour, "consume,enqueue queue:*"), tokenOf(t, "bob", time.Hour, "consume,enqueue queue:*")
	from := client{t, here.addr}
	wants := func(want string) {
		t.Helper()
		var got string
		defer func() {
			if got != want {
				t.Logf("got %s", got)
			}
		}()
		testkit.Eventually(t, "the consumers are "+want, func() bool { // a consumer ends, and a delivery is sent, after the answer
			got = strings.ReplaceAll(from.consumers("jobs", look).text(), " Go-http-client/1.1", "")
			return got == want
		})
	}
	wants("0 [deaf]: ")

	first := here.as("/ws", ann)
	first.ask(`{"type":"consume","queue":"jobs","credits":7,"id":1}`, `{"type":"ok","id":1}`)
	first.ask(`{"type":"consume","queue":"other","id":2}`, `{"type":"ok","id":2}`)
	wants("1 [deaf]: here ws ann 0/7")
	second := there.as("/ws", bob)
	second.ask(`{"type":"consume","queue":"jobs","credits":3,"id":1}`, `{"type":"ok","id":1}`)
	wants("2 [deaf]: here ws ann 0/7; there ws bob 0/3")

	if got := there.status("POST", "/v1/queues/jobs/messages", `{"payload":"1"}`, bob); got != "200" {
		t.Fatal(got)
	}
	delivery := second.delivery()
	wants("2 [deaf]: here ws ann 0/7; there ws bob 1/3")
	second.ask(`{"type":"ack","queue":"jobs","deliveries":["`+delivery.Delivery+`"],"id":3}`, `{"type":"ok","id":3,"count":1}`)
	second.ask(`{"type":"credit","queue":"jobs","n":-3,"id":4}`, `{"type":"ok","id":4}`)
	wants("2 [deaf]: here ws ann 0/7; there ws bob 0/0")

	first.ask(`{"type":"cancel","queue":"jobs","id":3}`, `{"type":"ok","id":3}`)
	wants("1 [deaf]: there ws bob 0/0")
	if got := here.status("POST", "/v1/queues/jobs/messages", `{"payload":"2"}`, ann); got != "200" {
		t.Fatal(got)
	}
	if got := here.status("POST", "/v1/queues/jobs/receive", "", ann); got != "200" {
		t.Fatal(got)
	}
	wants("2 [deaf]: there ws bob 0/0; here http ann 1/0")
	first.ask(`{"type":"consume","queue":"jobs","credits":1,"id":4}`, `{"type":"ok","id":4}`)
	wants("3 [deaf]: there ws bob 0/0; here http ann 1/0; here ws ann 0/1")
	second.Abort()
	first.Abort()
	wants("1 [deaf]: here http ann 1/0")
}

// named is a server of a cluster with another name.
type named struct {
	others
	name string
}

func (n named) Name() string { return n.name }
