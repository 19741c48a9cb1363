package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/fxamacker/cbor/v2"

	"github.com/tidewire/tidewire/websocket"
)

// named is a request with client and sequence.
type named struct {
	kind     string         // publish, enqueue, append or chat
	place    string         // the name of the stream, queue or room
	fields   map[string]any // without type, client and sequence
	client   string
	sequence int
	payloads []string // what it stores
	conflict bool     // its condition never holds
}

// outcome is an answer to a request, over HTTP or on /ws.
type outcome struct {
	Type, Code string
	Position   int64
	Positions  []int64
	Partition  int
	Count      int
	Duplicate  bool
	Error      *struct{ Code, Message string }
	Message    string
}

// places are the positions of what the request has stored.
func (r named) places(o outcome) []int64 {
	if r.kind == "append" {
		return o.Positions
	}
	step := int64(1)
	if r.kind == "enqueue" {
		step = queuePartitions
	}
	all := make([]int64, len(r.payloads))
	for i := range all {
		all[i] = o.Position + int64(i)*step
	}
	return all
}

// queuePartitions is the number of partitions of the queue.
const queuePartitions = 2

// tries sends the request once, in a random way. It returns false if it got no answer that is final.
func (r named) tries(ctx context.Context, addr string, way int) (o outcome, final bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	switch way {
	case 0, 1:
		o, err = r.overHTTP(ctx, addr, way == 0)
	default:
		o, err = r.onSocket(ctx, addr, way == 2 && r.kind != "chat")
	}
	if o.Error != nil {
		o.Code, o.Message = o.Error.Code, o.Error.Message
	}
	switch o.Code {
	case "", "conflict":
		return o, err == nil, nil
	case "unavailable", "outcome_unknown", "shutting_down", "not_stored", "overloaded", "busy":
		return o, false, nil
	}
	return o, false, fmt.Errorf("%s %d: %+v", r.client, r.sequence, o)
}

func (r named) overHTTP(ctx context.Context, addr string, header bool) (o outcome, err error) {
	path := map[string]string{
		"publish": "/v1/streams/" + r.place + "/messages", "enqueue": "/v1/queues/" + r.place + "/messages", "append": "/v1/events",
		"chat": "/v1/rooms/" + r.place + "/chats",
	}[r.kind]
	body := make(map[string]any)
	for name, value := range r.fields {
		body[name] = value
	}
	if !header {
		body["client"], body["sequence"] = r.client, r.sequence
	}
	text, err := json.Marshal(body)
	if err != nil {
		return o, err
	}
	q, err := http.NewRequestWithContext(ctx, "POST", "http://"+addr+path, bytes.NewReader(text))
	if err != nil {
		return o, err
	}
	q.Header.Set("Content-Type", "application/json")
	if header {
		q.Header.Set("Idempotency-Key", fmt.Sprint(r.client, ":", r.sequence))
	}
	resp, err := http.DefaultClient.Do(q)
	if err != nil {
		return o, err
	}
	defer resp.Body.Close()
	if text, err = io.ReadAll(resp.Body); err == nil {
		err = json.Unmarshal(text, &o)
	}
	return o, err
}

func (r named) onSocket(ctx context.Context, addr string, binary bool) (o outcome, err error) {
	protocol, op := "tidewire.v1", websocket.OpText
	marshal, unmarshal := json.Marshal, json.Unmarshal
	if binary {
		protocol, op, marshal, unmarshal = "tidewire.v1.cbor", websocket.OpBinary, cbor.Marshal, cbor.Unmarshal
	}
	c, err := websocket.Dial(ctx, "ws://"+addr+"/ws", websocket.Config{Subprotocols: []string{protocol}})
	if err != nil {
		return o, err
	}
	defer c.Abort()
	c.SetReadDeadline(time.Now().Add(20 * time.Second))
	message := map[string]any{"type": r.kind, "id": 1, "client": r.client, "sequence": r.sequence}
	for name, value := range r.fields {
		message[name] = value
	}
	if field := map[string]string{"publish": "stream", "enqueue": "queue", "chat": "room"}[r.kind]; field != "" {
		message[field] = r.place
	}
	text, err := marshal(message)
	if err != nil {
		return o, err
	}
	if r.kind == "chat" { // only members chat
		if err = c.Queue(websocket.OpText, fmt.Appendf(nil, `{"type":"join","room":%q,"user":"u"}`, r.place)); err != nil {
			return o, err
		}
	}
	if err = c.Queue(op, text); err == nil {
		err = c.Flush()
	}
	for err == nil {
		var messages []websocket.Message
		messages, err = c.Read()
		for _, m := range messages {
			o = outcome{}
			if err := unmarshal(m.Payload, &o); err != nil {
				return o, fmt.Errorf("%q: %w", m.Payload, err)
			}
			if o.Type == "ok" || o.Type == "error" {
				return o, nil
			}
		}
	}
	return outcome{}, err
}

// makeNamed makes a request. last is the position of the client's last event.
func makeNamed(number, sequence int, last int64, random *rand.Rand) named {
	r := named{client: fmt.Sprint("client-", number), sequence: sequence, fields: make(map[string]any)}
	n := 1
	if random.IntN(3) == 0 {
		n += random.IntN(20)
	}
	if r.kind = []string{"publish", "enqueue", "append", "chat"}[random.IntN(4)]; r.kind == "chat" {
		n = 1
	}
	for i := range n {
		r.payloads = append(r.payloads, fmt.Sprint(number, "/", sequence, "/", i))
	}
	var items []map[string]any
	tag := fmt.Sprint("of:", number)
	switch r.kind {
	case "publish", "enqueue":
		r.place = map[string]string{"publish": "s", "enqueue": "q"}[r.kind]
		key := fmt.Sprint("k", random.IntN(20))
		keyed := random.IntN(3) > 0
		for _, payload := range r.payloads {
			item := map[string]any{"payload": payload}
			if keyed {
				item["key"] = key
			}
			items = append(items, item)
		}
		if r.fields["messages"] = items; n == 1 {
			r.fields = items[0]
		}
	case "append":
		for _, payload := range r.payloads {
			items = append(items, map[string]any{"type": "T", "tags": []string{tag}, "data": payload})
		}
		r.fields["events"] = items
		if random.IntN(3) > 0 {
			if r.conflict = last > 0 && random.IntN(4) == 0; r.conflict {
				last--
			}
			r.fields["condition"] = map[string]any{"after": last, "query": map[string]any{"items": []any{map[string]any{"tags": []string{tag}}}}}
		}
	case "chat":
		r.place = fmt.Sprint("room-", random.IntN(3))
		r.fields["text"] = r.payloads[0]
	}
	return r
}
