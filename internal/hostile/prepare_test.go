package hostile

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/tidewire/tidewire/eventstore"
	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/stream"
)

// prepared are the attackers' streams and queues that exist before the attacks.
var prepared = []string{"evil-0", "evil-1", "evil-queue", "evil-lanes"}

// prepare creates what clients and attackers use.
func (w *world) prepare(db pgtest.DB) {
	w.t.Helper()
	ctx := w.t.Context()
	for path, body := range map[string]string{
		"/v1/streams/good-0": "{}", "/v1/streams/good-1": `{}`, "/v1/queues/good-jobs": "{}", "/v1/streams/good-regulars": "{}",
		"/v1/streams/" + sharedStream: "{}", "/v1/queues/" + sharedQueue: "{}",
		"/v1/streams/evil-0": `{"keyed":true}`, "/v1/streams/evil-1": `{"partitions":2}`, "/v1/queues/evil-queue": "{}", "/v1/queues/evil-lanes": `{"partitions":2}`,
		"/v1/streams/" + bigStream: `{"keyed":true}`,
	} {
		if !w.request("preparer", "POST", path, body, new(any)) {
			w.t.Fatalf("cannot make %s", path)
		}
	}
	large := []byte(strings.Repeat("b", bigEvent))
	big, err := stream.Lookup(ctx, db.Pool, bigStream)
	if err != nil {
		w.t.Fatal(err)
	}
	client, err := eventstore.Open(ctx, db.Pool, eventstore.Config{})
	if err != nil {
		w.t.Fatal(err)
	}
	defer client.Close(ctx)
	events, err := client.Ensure(ctx, "")
	if err != nil {
		w.t.Fatal(err)
	}
	appender := stream.NewAppender(db.Pool, big, stream.AppenderConfig{})
	appender.Start()
	defer appender.Stop()
	for range 100 {
		if _, err := appender.Append(ctx, stream.Message{Key: "k", Payload: large}); err != nil {
			w.t.Fatal(err)
		}
		if _, err := events.Append(ctx, eventstore.Event{Type: "Big", Tags: []string{bigTag}, Data: large}); err != nil {
			w.t.Fatal(err)
		}
	}
	it := w.newAttacker(ctx, "prepare", w.current().addr, 0, 1)
	it.token = w.gate.token("preparer", shortLife)
	chats := []string{fmt.Sprintf(`{"type":"join","room":%q,"id":1}`, bigRoom)}
	for id := range 10 {
		chats = append(chats, fmt.Sprintf(`{"type":"chat","room":%q,"text":%q,"id":%d}`, bigRoom, strings.Repeat("c", bigChat), id+2))
	}
	// The others open the existing streams and queues.
	others := []string{`{"type":"publish","stream":"evil-0","payload":"x","id":1}`, `{"type":"publish","stream":"evil-1","payload":"x","id":2}`,
		`{"type":"enqueue","queue":"evil-queue","payload":"x","id":3}`, `{"type":"enqueue","queue":"evil-lanes","payload":"x","id":4}`,
		`{"type":"append","events":[{"type":"A","tags":["evil"]}],"id":5}`}
	for _, requests := range [][]string{chats, chats, chats, chats, others} {
		h := it.converse("/ws", requests...)
		for id := range requests {
			if m := h.answers[id+1]; m.Type != "ok" {
				w.t.Fatalf("%.100s was answered %+v, %v", requests[id], m, h.err)
			}
		}
	}
}

// tidy removes the streams and queues that attacks have created: each one that is in use has goroutines.
func (w *world) tidy() {
	var all struct {
		Streams []struct{ Stream string }
		Queues  []struct{ Queue string }
	}
	w.request("preparer", "GET", "/v1/queues", "", &all)
	for _, q := range all.Queues {
		if strings.HasPrefix(q.Queue, "evil") && !slices.Contains(prepared, q.Queue) {
			w.request("preparer", "DELETE", "/v1/queues/"+url.PathEscape(q.Queue), "", &all)
		}
	}
	w.request("preparer", "GET", "/v1/streams", "", &all)
	for _, s := range all.Streams {
		if name, _, _ := strings.Cut(s.Stream, "/"); strings.HasPrefix(name, "evil") && !slices.Contains(prepared, name) {
			w.request("preparer", "DELETE", "/v1/streams/"+url.PathEscape(s.Stream), "", &all)
		}
	}
}
