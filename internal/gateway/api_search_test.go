package gateway_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/gateway"
)

// searchAnswer is an answer of a search.
type searchAnswer struct {
	Messages    []struct{ Position int64 }
	Next        int64
	Read, Bytes int64
	Done        bool
}

func (c client) search(query string) (a searchAnswer) {
	c.t.Helper()
	status, text := c.do("GET", "/v1/streams/orders/search?"+query, "")
	if err := json.Unmarshal([]byte(text), &a); err != nil || status != http.StatusOK {
		c.t.Fatalf("%d %s %v", status, text, err)
	}
	return a
}

// TestSearch: a request reads a bounded number of messages and says how far it is, and the next one goes on there.
func TestSearch(t *testing.T) {
	t.Parallel()
	streams := newFakeStreams(t, "orders")
	log := streams.streams["orders"]
	for i := range int64(25_000) {
		log.messages = append(log.messages, engine.Message{Position: i + 1, Key: fmt.Sprint("k", i%2), Payload: fmt.Appendf(nil, `{"n":%d,"last":%d}`, i+1, (i+1)%10)})
	}
	_, addr := serve(t, gateway.Config{Engine: engine.Engine{Streams: streams}})
	c := client{t, addr}
	if a := c.search("path=n&value=24000"); len(a.Messages) != 0 || a.Read != 10_000 || a.Next != 10_000 || a.Done || a.Bytes == 0 {
		t.Errorf("the first part: %+v", a)
	}
	if a := c.search("path=n&value=24000&after=20000"); len(a.Messages) != 1 || a.Messages[0].Position != 24_000 || a.Read != 5000 || !a.Done || a.Next != 25_000 {
		t.Errorf("the last part: %+v", a)
	}
	if a := c.search("text=n&limit=5&after=7"); len(a.Messages) != 5 || a.Next != 12 || a.Read != 5 || a.Done {
		t.Errorf("as many as wanted: %+v", a)
	}
	if a := c.search(`text=%22LAST%22:3&any_case=true&after=10&until=33`); len(a.Messages) != 3 || a.Next != 33 || a.Read != 23 || !a.Done {
		t.Errorf("a range: %+v", a)
	}
	if a := c.search("text=n&key=k0&until=10"); len(a.Messages) != 5 || !a.Done {
		t.Errorf("a key: %+v", a)
	}
	for _, query := range []string{"", "value=1", "text=a&value=1", "text=%ff", "text=a&any_case=no", "text=a&until=-1", "text=a&limit=0", "path=1.2.3.4.5.6.7.8.9.10.11.12.13.14.15.16.17.18"} {
		c.refused("GET", "/v1/streams/orders/search?"+query, "", http.StatusBadRequest, "invalid_parameter")
	}
	c.refused("GET", "/v1/streams/nope/search?text=a", "", http.StatusNotFound, "not_found")
	log.oldest = 5
	c.refused("GET", "/v1/streams/orders/search?text=a", "", http.StatusGone, "too_old")
}
