package hostile

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"

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
		var made any
		if !w.request("preparer", "POST", path, strings.NewReader(body), &made) {
			w.t.Fatalf("cannot make %s", path)
		}
	}
	large := strings.Repeat("b", bigEvent)
	big, err := stream.Lookup(ctx, db.Pool, bigStream)
	if err != nil {
		w.t.Fatal(err)
	}
	appender := stream.NewAppender(db.Pool, big, stream.AppenderConfig{})
	appending, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	appender.Start()
	running.Go(func() { <-appending.Done(); appender.Stop() })
	client, err := eventstore.Open(ctx, db.Pool, eventstore.Config{})
	if err != nil {
		w.t.Fatal(err)
	}
	events, err := client.Ensure(ctx, "")
	if err != nil {
		w.t.Fatal(err)
	}
	for range 100 {
		if _, err := appender.Append(ctx, stream.Message{Key: "k", Payload: []byte(large)}); err != nil {
			w.t.Fatal(err)
		}
		if _, err := events.Append(ctx, eventstore.Event{Type: "Big", Tags: []string{bigTag}, Data: []byte(large)}); err != nil {
			w.t.Fatal(err)
		}
	}
	stop()
	running.Wait()
	if err := events.Close(ctx); err != nil {
		w.t.Fatal(err)
	}
	it := w.newAttacker(ctx, "prepare", w.current().addr, 0, 1)
	it.token = w.gate.token("preparer", shortLife)
	for range 40 {
		join := fmt.Sprintf(`{"type":"join","room":%q,"id":1}`, bigRoom)
		chat := fmt.Sprintf(`{"type":"chat","room":%q,"text":%q,"id":2}`, bigRoom, strings.Repeat("c", bigChat))
		if h := it.converse("/ws", join, chat); h.answers[2].Type != "ok" {
			w.t.Fatalf("a chat was answered %+v, %v", h.answers[2], h.err)
		}
	}
	// Opens the existing streams and queues.
	it.converse("/ws", `{"type":"publish","stream":"evil-0","payload":"x","id":1}`, `{"type":"publish","stream":"evil-1","payload":"x","id":2}`,
		`{"type":"enqueue","queue":"evil-queue","payload":"x","id":3}`, `{"type":"enqueue","queue":"evil-lanes","payload":"x","id":4}`,
		`{"type":"append","events":[{"type":"A","tags":["evil"]}],"id":5}`)
}

// tidy removes the streams and queues that attacks have created: each one that is
// in use has goroutines.
func (w *world) tidy() {
	var all struct {
		Streams []struct{ Stream string }
		Queues  []struct{ Queue string }
	}
	w.request("preparer", "GET", "/v1/queues", nil, &all)
	for _, q := range all.Queues {
		if strings.HasPrefix(q.Queue, "evil") && !slices.Contains(prepared, q.Queue) {
			w.request("preparer", "DELETE", "/v1/queues/"+url.PathEscape(q.Queue), nil, &all)
		}
	}
	w.request("preparer", "GET", "/v1/streams", nil, &all)
	for _, s := range all.Streams {
		if name, _, _ := strings.Cut(s.Stream, "/"); strings.HasPrefix(name, "evil") && !slices.Contains(prepared, name) {
			w.request("preparer", "DELETE", "/v1/streams/"+url.PathEscape(s.Stream), nil, &all)
		}
	}
}
