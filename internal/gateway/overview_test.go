package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/gateway"
)

// overviewAnswer is an answer of /v1/overview.
type overviewAnswer struct {
	Closed   bool
	Points   map[string][]int64
	Database map[string]any
}

func (c client) overview(query string) (a overviewAnswer) {
	c.t.Helper()
	status, text := c.do("GET", "/v1/overview"+query, "")
	if err := json.Unmarshal([]byte(text), &a); err != nil || status != http.StatusOK {
		c.t.Fatalf("%d %s %v", status, text, err)
	}
	return a
}

// TestOverview: what clients do is in the points, and a console gets only those that it does not have. The state of the database is kept for 5 s.
func TestOverview(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		kept := cannedEngine(closed{streams: newFakeStreams(t, "orders"), queues: newFakeQueues(t, "jobs")})
		asked := int64(0)
		kept.Database = func(context.Context) (engine.Database, error) {
			asked++
			return engine.Database{Version: "18.3", Size: 1 << 30, WAL: asked << 20, Standbys: 1, Connections: 2, MaxConnections: 9}, nil
		}
		_, addr := serve(t, gateway.Config{Engine: kept, Nodes: cannedNodes{}, Version: "v1.2.3"})
		c := client{t, addr}
		w := connect(t, addr)
		w.ask(`{"type":"publish","id":1,"stream":"s","payload":"x"}`, `{"type":"ok","id":1,"partition":1,"position":7}`)
		c.do("POST", "/v1/streams/s/messages", `{"messages":[{"payload":"x"},{"payload":"y"}]}`)
		time.Sleep(2500 * time.Millisecond)
		got := c.overview("")
		if sum(got.Points["stored"]) != 3 || sum(got.Points["connections"]) == 0 || got.Points["publish_p50_us"] == nil || got.Closed {
			t.Errorf("%+v", got)
		}
		for name, values := range got.Points {
			if len(values) != len(got.Points["time"]) {
				t.Errorf("%s has %d points of %d", name, len(values), len(got.Points["time"]))
			}
		}
		last := got.Points["time"][len(got.Points["time"])-1]
		time.Sleep(2 * time.Second)
		if times := c.overview(fmt.Sprint("?after=", last)).Points["time"]; len(times) != 2 || times[0] <= last {
			t.Errorf("points of %v after %d", times, last)
		}
		if got.Database["reachable"] != true || got.Database["standbys"] != 1.0 || asked != 1 {
			t.Errorf("%v after %d questions", got.Database, asked)
		}
		time.Sleep(3 * time.Second) // the rate is known after the second question, and each of them adds 1 MiB to the log
		if rate, _ := c.overview("").Database["wal_bytes_per_second"].(float64); rate <= 0 || rate > 1<<20 || asked != 2 {
			t.Errorf("the log grows by %v bytes/s, after %d questions", rate, asked)
		}
		c.refused("GET", "/v1/overview?after=-1", "", 400, "invalid_parameter")
	})
}

func sum(values []int64) (all int64) {
	for _, v := range values {
		all += v
	}
	return all
}

// TestOverview_DatabaseAway: the rest is answered.
func TestOverview_DatabaseAway(t *testing.T) {
	t.Parallel()
	kept := cannedEngine(closed{streams: newFakeStreams(t), queues: newFakeQueues(t)})
	kept.Database = func(context.Context) (engine.Database, error) {
		return engine.Database{MaxConnections: 9}, errors.New("away")
	}
	_, addr := serve(t, gateway.Config{Engine: kept})
	if got := (client{t, addr}).overview("").Database; got["reachable"] != false || got["max_connections"] != 9.0 {
		t.Errorf("%v", got)
	}
}
