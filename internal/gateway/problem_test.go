package gateway_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/tidewire/tidewire/websocket"
)

// answered is an error as a client receives it.
type answered struct {
	Type, Code, Message string
	ID                  any
}

// refusedWith sends a request and returns the answer to it.
func (w *wire) refusedWith(text string) (a answered) {
	w.t.Helper()
	send(w.t, w.socket, text)
	if line := w.next(); json.Unmarshal([]byte(line), &a) != nil {
		w.t.Fatalf("%.90s was answered with %s", text, line)
	}
	return a
}

// TestProblem_NotFound: an answer names what there is not.
func TestProblem_NotFound(t *testing.T) {
	t.Parallel()
	_, _, _, addr := serveAll(t)
	c := connect(t, addr)
	for _, row := range []struct{ fields, want string }{
		{`"type":"publish","stream":"nothing","payload":"x"`, `there is no stream "nothing"`},
		{`"type":"subscribe","stream":"nothing"`, `there is no stream "nothing"`},
		{`"type":"subscribe","stream":"nothing","group":"g"`, `there is no stream "nothing", or no group "g" of it`},
		{`"type":"commit","stream":"nothing","group":"g","position":1`, `there is no stream "nothing", or no group "g" of it`},
		{`"type":"enqueue","queue":"nothing","payload":"x"`, `there is no queue "nothing"`},
		{`"type":"consume","queue":"nothing"`, `there is no queue "nothing"`},
	} {
		if got := c.refusedWith(`{"id":1,` + row.fields + `}`); got.Code != "not_found" || got.Message != row.want {
			t.Errorf("%s: %+v, want %s", row.fields, got, row.want)
		}
	}
}

// wrongFields are requests of each type on /ws with one invalid field, and the
// expected error.
var wrongFields = []struct{ fields, want string }{
	{`"type":5`, `type: want a string`},
	{`"type":"publish","stream":5,"payload":"x"`, `stream: want a string`},
	{`"type":"publish","stream":"orders","payload":{"a":1}`, `payload: want a string`},
	{`"type":"publish","stream":"orders"`, `payload: want a string here, or in payload_base64`},
	{`"type":"publish","stream":"orders","payload":"a","payload_base64":"YQ=="`, `payload: want either payload or payload_base64, not both`},
	{`"type":"publish","stream":"orders","payload_base64":"YQ"`, `payload_base64: want base64, with its padding`},
	{`"type":"publish","stream":"orders","payload":"a","key":7`, `key: want a string`},
	{`"type":"publish","stream":"orders","payload":"a","headers":[{}]`, `headers: want an object`},
	{`"type":"publish","stream":"orders","messages":{}`, `messages: want an array`},
	{`"type":"publish","stream":"orders","messages":[]`, `messages: want 1 to 1000 messages`},
	{`"type":"publish","stream":"orders","payload":"b","messages":[{"payload":"a"}]`, `messages: want either messages or a payload, not both`},
	{`"type":"publish","stream":"orders","messages":[{"payload":"a"},7]`, `messages[1]: want an object`},
	{`"type":"publish","stream":"orders","messages":[{"payload":"a"},{"payload":[]}]`, `messages[1].payload: want a string`},
	{`"type":"publish","stream":"orders","messages":[{"payload":"a"},{}]`, `messages[1].payload: want a string here, or in payload_base64`},
	{`"type":"publish","stream":"orders","messages":[{"payload":"a","headers":"x"}]`, `messages[0].headers: want an object`},
	{`"type":"publish","stream":"orders","payload":"a","client":5,"sequence":1`, `client: want a string`},
	{`"type":"publish","stream":"orders","payload":"a","client":"p","sequence":"1"`, `sequence: want a whole number of 64 bits`},
	{`"type":"subscribe","stream":"orders","after":1.5`, `after: want a whole number of 64 bits`},
	{`"type":"subscribe","stream":"orders","after":9223372036854775808`, `after: want a whole number of 64 bits`},
	{`"type":"subscribe","stream":"orders","at":"yesterday"`, `at: want a time as RFC 3339 writes it, such as 2027-01-31T12:00:00Z`},
	{`"type":"subscribe","stream":"orders","at":7`, `at: want a time as RFC 3339 writes it, such as 2027-01-31T12:00:00Z`},
	{`"type":"subscribe","stream":"orders","from":true`, `from: want a string`},
	{`"type":"subscribe","stream":"orders","group":[]`, `group: want a string`},
	{`"type":"subscribe","stream":"orders","credits":"5"`, `credits: want a whole number of 64 bits`},
	{`"type":"subscribe","query":{"items":[{"types":"a"}]},"subscription":"s"`, `query.items[0].types: want an array`},
	{`"type":"subscribe","stream":"orders","query":{}`, `query: want either a stream or a query, not both`},
	{`"type":"unsubscribe","subscription":1`, `subscription: want a string`},
	{`"type":"commit","stream":"orders","group":"g"`, `position: want a whole number, 0 or more`},
	{`"type":"commit","stream":"orders","group":"g","position":-1`, `position: want a whole number, 0 or more`},
	{`"type":"commit","stream":"orders","group":"g","position":"5"`, `position: want a whole number of 64 bits`},
	{`"type":"enqueue","queue":{},"payload":"x"`, `queue: want a string`},
	{`"type":"enqueue","queue":"jobs","payload":"x","delay_ms":"1"`, `delay_ms: want a whole number of 64 bits`},
	{`"type":"enqueue","queue":"jobs","payload":"x","priority":1e400`, `priority: want a whole number of 64 bits`},
	{`"type":"enqueue","queue":"jobs","payload":"x","unique_key":7,"unique_ms":1000`, `unique_key: want a string`},
	{`"type":"enqueue","queue":"jobs","payload":"x","unique_ms":1000`, `unique_key: want a string that is not empty`},
	{`"type":"consume","queue":"jobs","credits":[]`, `credits: want a whole number of 64 bits`},
	{`"type":"ack","queue":"jobs"`, `delivery: want a string here, or 1 to 1000 of them in deliveries`},
	{`"type":"ack","queue":"jobs","delivery":"a","deliveries":["b"]`, `delivery: want either delivery or deliveries, not both`},
	{`"type":"nack","queue":"jobs","deliveries":["a", "b",3 ]`, `deliveries[2]: want a string`},
	{`"type":"nack","queue":"jobs","delivery":"a","reason":{}`, `reason: want a string`},
	{`"type":"extend","queue":"jobs","delivery":"a","lease_ms":true`, `lease_ms: want a whole number of 64 bits`},
	{`"type":"cancel","queue":false`, `queue: want a string`},
	{`"type":"credit","n":1`, `subscription: want either subscription or queue`},
	{`"type":"credit","subscription":"s","n":"1"`, `n: want a whole number of 64 bits`},
	{`"type":"append","events":[{"type":"a","tags":["x",1]}]`, `events[0].tags[1]: want a string`},
	{`"type":"append","store":1,"events":[]`, `store: want a string`},
	{`"type":"append","events":[{"type":"a"}],"condition":{"query":{},"after":"1"}`, `condition.after: want a whole number of 64 bits`},
	{`"type":"query","query":[]`, `query: want an object`},
	{`"type":"query","backwards":1`, `backwards: want true or false`},
	{`"type":"query","limit":"1"`, `limit: want a whole number of 64 bits`},
	{`"type":"project","queries":[{"items":[{},{"tags":{}}]}]`, `queries[0].items[1].tags: want an array`},
}

// wrongChats is the same for the messages of chats, on /ws and /ws/chat.
var wrongChats = []struct{ fields, want string }{
	{`"type":"join","room":7`, `room: want a string`},
	{`"type":"join","user":{}`, `user: want a string`},
	{`"type":"join","on_lag":1`, `on_lag: want a string`},
	{`"type":"join","on_lag":"disconect"`, `on_lag: want gap or disconnect`},
	{`"type":"join","presence":"yes"`, `presence: want true or false`},
	{`"type":"join","after":-1`, `after: want a whole number, 0 or more`},
	{`"type":"join","history":1.5`, `history: want a whole number, 0 or more`},
	{`"type":"chat"`, `text: want a string`},
	{`"type":"chat","text":null`, `text: want a string`},
	{`"type":"chat","text":"x","room":"a","Room":"b"`, `room: want this field once, spelled in no other way`},
	{`"type":"leave","room":[]`, `room: want a string`},
	{`"type":"ping","user":1`, `user: want a string`},
	{`"type":"pong","room":1`, `room: want a string`},
}

func TestMalformed_NamesTheField(t *testing.T) {
	t.Parallel()
	_, _, _, addr := serveAll(t)
	for path, table := range map[string][][]struct{ fields, want string }{
		"/ws": {wrongFields, wrongChats}, "/ws/chat": {wrongChats},
	} {
		c := &wire{socket: dial(t, "ws://"+addr+path), t: t}
		for _, rows := range table {
			for _, row := range rows {
				if a := c.refusedWith(`{"id":"x",` + row.fields + `}`); a.Type != "error" || a.Code != "malformed" || a.ID != "x" || a.Message != row.want {
					t.Errorf("%s %s: %+v, want %s", path, row.fields, a, row.want)
				}
			}
		}
	}
}

// TestInvalid_NamesTheField: the error for a value of the right type and out of
// range names the field.
func TestInvalid_NamesTheField(t *testing.T) {
	t.Parallel()
	_, _, _, addr := serveAll(t)
	c := &wire{socket: dial(t, "ws://"+addr+"/ws"), t: t}
	for _, row := range []struct{ fields, code, want string }{
		{`"type":"publish","stream":"orders","payload":"x","sequence":1`, "invalid", "client: want a name of 1 to 128 bytes beside sequence"},
		{`"type":"publish","stream":"orders","payload":"x","client":"p"`, "invalid", "sequence: want a number, 0 or more, beside client"},
		{`"type":"publish","stream":"orders","payload":"x","client":"p","sequence":-1`, "invalid", "sequence: want a number, 0 or more, beside client"},
		{`"type":"enqueue","queue":"jobs","payload":"x","client":"p"`, "invalid", "sequence: want a number, 0 or more, beside client"},
		{`"type":"enqueue","queue":"jobs","payload":"x","priority":10`, "invalid", "priority: want a number from 0 to 9"},
		{`"type":"enqueue","queue":"jobs","payload":"x","delay_ms":-1`, "invalid_duration", "delay_ms: want a number from 0 to 86400000"},
		{`"type":"enqueue","queue":"jobs","payload":"x","unique_key":"k","unique_ms":600001`, "invalid_duration", "unique_ms: want a number from 1000 to 600000"},
		{`"type":"enqueue","queue":"jobs","messages":[{"payload":"x"}],"unique_key":"k","unique_ms":1000`, "invalid", "messages: want one message beside unique_key"},
		{`"type":"publish","payload":"x"`, "invalid_name", "stream: want a name of 1 to 128 bytes without NUL, which does not begin with tidewire."},
		{`"type":"commit","stream":"orders","position":1`, "invalid_name", "group: want a name of 1 to 128 bytes without NUL, which does not begin with tidewire."},
		{`"type":"publish","stream":"orders","messages":[{"paylod":"b"}]`, "unknown_field", "messages[0].paylod: there is no such field here"},
		{`"type":"publsh","stream":"orders"`, "unknown_type", "type: want one of ack, append, auth, begin, cancel, chat, commit, consume, credit, enqueue, extend, join, leave, nack, ping, pong, project, publish, query, subscribe, unsubscribe"},
		{`"type":"subscribe","stream":"orders","after":-1`, "invalid_start", "after: want a position, 0 or more"},
		{`"type":"subscribe","stream":"orders","from":"now"`, "invalid_start", "from: want start or end"},
		{`"type":"subscribe","stream":"orders","credits":-1`, "invalid_credits", "credits: want a number from 0 to 1073741824"},
		{`"type":"consume","queue":"jobs","credits":10001`, "invalid_credits", "credits: want a number from 0 to 10000"},
		{`"type":"extend","queue":"jobs","delivery":"a"`, "invalid_duration", "lease_ms: want a number from 1 to 86400000"},
		{`"type":"nack","queue":"jobs","delivery":"a","reason":"` + strings.Repeat("x", 1025) + `"`, "invalid", "reason: want at most 1024 bytes"},
		{`"type":"nack","queue":"jobs","delivery":"a","dead":true,"delay_ms":5`, "invalid", "dead: want no delay_ms beside it"},
	} {
		if a := c.refusedWith(`{"id":"x",` + row.fields + `}`); a.Code != row.code || a.ID != "x" || a.Message != row.want {
			t.Errorf("%.90s: %+v, want %s, %s", row.fields, a, row.code, row.want)
		}
	}
	for _, row := range []struct{ path, body, code, want string }{
		{"queues/new", `{"max_attempts":-1}`, "invalid", "max_attempts: want a number from 1 to 1048576"},
		{"queues/new", `{"priorities":11}`, "invalid", "priorities: want a number from 2 to 10"},
		{"queues/new", `{"partitions":65}`, "invalid", "partitions: want a number from 1 to 64"},
		{"queues/new", `{"partitions":2,"priorities":2}`, "invalid", "partitions: want either priorities or partitions, not both"},
		{"queues/new", `{"retry_max_ms":-1}`, "invalid_duration", "retry_max_ms: want a number from 0 to 86400000"},
		{"queues/jobs/receive?max=1001", `{}`, "invalid_parameter", "max: want a number from 1 to 1000"},
		{"queues/jobs/receive?maxx=1", `{}`, "invalid_parameter", `"maxx": the URL of this request has no such parameter: want max, wait_ms`},
		{"queues/jobs/ack?x", `{}`, "invalid_parameter", `"x": the URL of this request has no such parameter: want none`},
		{"streams/orders/messages", `{"messages":[{"payload":"a"},{"paylod":"b"}]}`, "unknown_field", "messages[1].paylod: there is no such field here"},
		{"streams/orders/messages", `{"messages":[{"payload":"a","ky":"b"},{}]}`, "malformed", "messages[1].payload: want a string here, or in payload_base64"},
		{"queues/jobs/dead/redrive", `{"filter":{"since":"yesterday"}}`, "malformed", "filter.since: want a time as RFC 3339 writes it, such as 2027-01-31T12:00:00Z"},
		{"queues/jobs/dead/redrive", `{"filter":{"reasn":"x"}}`, "unknown_field", "filter.reasn: this request has no such field"},
		{"queues/jobs/dead/redrive", `{"fitler":{"reason":"x"}}`, "unknown_field", "fitler: this request has no such field"},
		{"queues/jobs/dead/purge", `{"filter":{"key":""}}`, "malformed", "filter: want at least one field that selects, or all (true) in place of filter"},
		{"streams/nothing/messages", `{"payload":"x"}`, "not_found", `there is no stream "nothing"`},
		{"queues/nothing/messages", `{"payload":"x"}`, "not_found", `there is no queue "nothing"`},
		{"streams/nothing/groups/g/commit", `{"position":1}`, "not_found", `there is no stream "nothing", or no group "g" of it`},
	} {
		resp, err := http.Post("http://"+addr+"/v1/"+row.path, "application/json", strings.NewReader(row.body))
		if err != nil {
			t.Fatal(err)
		}
		var got struct{ Error answered }
		err = json.NewDecoder(resp.Body).Decode(&got)
		resp.Body.Close()
		if err != nil || got.Error.Code != row.code || got.Error.Message != row.want {
			t.Errorf("%s %s: %+v, %v; want %s, %s", row.path, row.body, got.Error, err, row.code, row.want)
		}
	}
}

// TestRequest_NullIsNoID: many libraries write null for a field that is not
// set.
func TestRequest_NullIsNoID(t *testing.T) {
	t.Parallel()
	_, _, _, addr := serveAll(t)
	c := &wire{socket: dial(t, "ws://"+addr+"/ws"), t: t}
	send(t, c.socket, `{"id":null,"type":"publish","stream":"orders","payload":"unasked"}`)
	c.ask(`{"id":1,"type":"publish","stream":"orders","payload":"asked"}`, `{"type":"ok","id":1,"position":2}`)
}

func TestMalformed_NamesTheFieldOverHTTP(t *testing.T) {
	t.Parallel()
	_, _, _, addr := serveAll(t)
	for _, c := range []struct{ path, body, want string }{
		{"streams/orders/messages", `{"payload":1}`, `payload: want a string`},
		{"streams/orders/messages", `{"messages":[{"payload":"a"},{}]}`, `messages[1].payload: want a string here, or in payload_base64`},
		{"streams/orders/messages", `[]`, `want a JSON object`},
		{"streams/orders/messages", `{"payload":}`, `not JSON: invalid character '}' looking for beginning of value, at byte 12`},
		{"streams/orders/messages", "{\"payload\":\"\xff\"}", `not UTF-8: want JSON, which is UTF-8`},
		{"streams/orders/messages", `{"payload":"a","id":[]}`, `id: want a string or number of at most 128 bytes`},
		{"streams/new", `{"keyed":"yes"}`, `keyed: want true or false`},
		{"streams/new", `{"partitions":"2"}`, `partitions: want a whole number of 64 bits`},
		{"streams/orders/groups/g/commit", `{}`, `position: want a whole number, 0 or more`},
		{"queues/new", `{"max_attempts":"2"}`, `max_attempts: want a whole number of 64 bits`},
		{"queues/new", `{"retry_min_ms":{}}`, `retry_min_ms: want a whole number of 64 bits`},
		{"queues/jobs/messages", `{"payload":"x","unique_ms":5000}`, `unique_key: want a string that is not empty`},
		{"queues/jobs/ack", `{}`, `delivery: want a string here, or 1 to 1000 of them in deliveries`},
		{"queues/jobs/nack", `{"delivery":1}`, `delivery: want a string`},
		{"queues/jobs/extend", `{"delivery":"a","lease_ms":"1"}`, `lease_ms: want a whole number of 64 bits`},
		{"events", `{"events":[{"type":1}]}`, `events[0].type: want a string`},
		{"events/query", `{"query":1}`, `query: want an object`},
		{"events/project", `{"queries":[1]}`, `queries[0]: want an object`},
	} {
		resp, err := http.Post("http://"+addr+"/v1/"+c.path, "application/json", strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		var got struct{ Error answered }
		err = json.NewDecoder(resp.Body).Decode(&got)
		resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusBadRequest || got.Error.Code != "malformed" || got.Error.Message != c.want {
			t.Errorf("%s %s: %d %+v, %v; want %s", c.path, c.body, resp.StatusCode, got.Error, err, c.want)
		}
	}
}

// TestMalformed_IsAnsweredAsFarAsItCanBeRead: a request is answered with its id
// although the rest is invalid JSON, or nested too deeply.
func TestMalformed_IsAnsweredAsFarAsItCanBeRead(t *testing.T) {
	t.Parallel()
	_, _, _, addr := serveAll(t)
	deep := strings.Repeat(`[{"]":`, 6000) + `"}\"]"` + strings.Repeat(`}]`, 6000)
	for path, kinds := range map[string][]string{"/ws": {"publish", "append", "chat", "nonsense"}, "/ws/chat": {"chat", "join", "nonsense"}} {
		c := &wire{socket: dial(t, "ws://"+addr+path), t: t}
		for _, kind := range kinds {
			for _, text := range []string{
				`{"id":"x","type":"` + kind + `","data":` + deep + `}`,
				`{"data":` + deep + `, "type" : "` + kind + `" , "id" : "x" }`,
				` {"data":` + strings.Repeat("[", 20000) + strings.Repeat("]", 20000) + `,"id":"x","type":"` + kind + `"}`,
				`{"id":"x","type":"` + kind + `","data":` + strings.Repeat(`{"a":`, 10100),
				`{"id":"x","type":"` + kind + `","payload":}`,
				`{"type":"` + kind + `","payload":nonsense,"id":"x"}`,
				`{"id":"x","type":"` + kind,
				`{"id":"x"`,
			} {
				if a := c.refusedWith(text); a.Code != "malformed" || a.ID != "x" || !strings.Contains(a.Message, "nested too deeply") && !(strings.Contains(a.Message, "not JSON") && strings.Contains(a.Message, "at byte")) {
					t.Errorf("%s %.60s: %+v", path, text, a)
				}
			}
		}
		// These have no readable or no valid id.
		for _, text := range []string{`{"id":"x`, `{"id":[1],"a":}`, `{"id":"\q","a":}`, `{id:1}`, `{"a" "id":1}`, `{"a":{"id":1},`, `["id",1`, `}`, `{"a":1]"id":1}`, `{"id"`, `{"id":`, `{`, ``} {
			send(t, c.socket, text)
		}
		c.ask(`{"type":"ping","ts":1}`, `{"ts":1,"type":"pong"}`)
	}
	// An ambiguous id gets no answer: for which one would its sender wait?
	c := dial(t, "ws://"+addr+"/ws/chat")
	send(t, c, `{"id":1,"ID":2,"a":}`, `{"type":"ping","ts":1}`)
	expect(t, c, `{"ts":1,"type":"pong"}`)
}

// TestChat_BinaryMessagesAreUTF8: members read JSON, whatever the opcode.
func TestChat_BinaryMessagesAreUTF8(t *testing.T) {
	t.Parallel()
	_, _, addr := serveStored(t)
	for _, path := range []string{"/ws", "/ws/chat"} {
		talker, member := dial(t, "ws://"+addr+path), &wire{socket: dial(t, "ws://"+addr+path), t: t}
		for _, room := range []string{"plain", "kept-1"} {
			send(t, talker, `{"type":"join","room":"`+room+`","id":1}`)
			heard(t, talker, "1")
			send(t, member.socket, `{"type":"join","room":"`+room+`","id":1}`)
			heard(t, member.socket, "1")
			talker.Queue(websocket.OpBinary, []byte("{\"type\":\"chat\",\"room\":\""+room+"\",\"text\":\"\xff\",\"id\":2}"))
			talker.Queue(websocket.OpBinary, []byte("{\"type\":\"chat\",\"room\":\""+room+"\",\"text\":\"x\",\"id\":\"\xff\"}"))
			talker.Queue(websocket.OpBinary, []byte("{\"type\":\"ping\",\"ts\":\"\xff\"}"))
			talker.Flush()
			expect(t, talker, `{"code":"malformed","id":2,"message":"not UTF-8: want JSON, which is UTF-8","retryable":false,"type":"error"}`)
			talker.Queue(websocket.OpBinary, []byte(`{"type":"chat","room":"`+room+`","text":"é","id":3}`))
			talker.Flush()
			heard(t, talker, "3")
			if got := member.next(); !strings.Contains(got, `"text":"é"`) {
				t.Errorf("%s: a member of %s got %q", path, room, got)
			}
		}
	}
}
