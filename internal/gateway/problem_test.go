package gateway_test

import (
	"encoding/json"
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

const (
	wantText   = "want a string"
	wantNumber = "want a whole number of 64 bits"
	wantName   = "want a name of 1 to 128 bytes without NUL, which does not begin with tidewire."
)

// wrongFields are requests on /ws with a field that is wrong, and the code and message of the answer.
var wrongFields = []struct{ fields, code, want string }{
	{`"type":5`, "malformed", "type: " + wantText},
	{`"type":"publsh","stream":"orders"`, "unknown_type", "type: want one of ack, append, auth, begin, cancel, chat, commit, consume, credit, enqueue, extend, join, leave, nack, ping, pong, project, publish, query, subscribe, unsubscribe"},
	{`"no":1`, "unknown_type", ""},
	{`"type":"publish","stream":5,"payload":"x"`, "malformed", "stream: " + wantText},
	{`"type":"publish","stream":"orders","payload":{"a":1}`, "malformed", "payload: " + wantText},
	{`"type":"publish","stream":"orders","payload":null`, "malformed", "payload: want a string here, or in payload_base64"},
	{`"type":"publish","stream":"orders","payload":"a","payload_base64":"YQ=="`, "malformed", "payload: want either payload or payload_base64, not both"},
	{`"type":"publish","stream":"orders","payload_base64":"YQ"`, "malformed", "payload_base64: want base64, with its padding"},
	{`"type":"publish","stream":"orders","payload":"a","headers":[{}]`, "malformed", "headers: want an object"},
	{`"type":"publish","stream":"orders","payload":"b","messages":[{"payload":"a"}]`, "malformed", "messages: want either messages or a payload, not both"},
	{`"type":"publish","stream":"orders","messages":[{"payload":"a"},7]`, "malformed", "messages[1]: want an object"},
	{`"type":"publish","stream":"orders","messages":[{"payload":"a"},{}]`, "malformed", "messages[1].payload: want a string here, or in payload_base64"},
	{`"type":"publish","stream":"orders","messages":[{"paylod":"b"}]`, "unknown_field", "messages[0].paylod: there is no such field here"},
	{`"type":"publish","stream":"orders","messages":[` + strings.Repeat(`{"payload":""},`, 1001) + `{"payload":""}]`, "too_many_messages", ""},
	{`"type":"publish","stream":"orders","payload":"a","client":"p","sequence":"1"`, "malformed", "sequence: " + wantNumber},
	{`"type":"publish","stream":"orders","payload":"x","sequence":1`, "invalid", "client: want a name of 1 to 128 bytes beside sequence"},
	{`"type":"publish","stream":"orders","payload":"x","client":"p","sequence":-1`, "invalid", "sequence: want a number, 0 or more, beside client"},
	{`"type":"publish","payload":"x"`, "invalid_name", "stream: " + wantName},
	{`"type":"publish","payload":"x","stream":"a\u0000b"`, "invalid_name", ""},
	{`"type":"publish","payload":"x","stream":"` + strings.Repeat("n", 129) + `"`, "invalid_name", ""},
	{`"type":"subscribe","stream":"orders","subscription":"` + strings.Repeat("n", 129) + `"`, "invalid_name", "subscription: want a name of 1 to 128 bytes without NUL"},
	{`"type":"subscribe","stream":"nothing","group":"g"`, "not_found", `there is no stream "nothing", or no group "g" of it`},
	{`"type":"subscribe","stream":"orders","after":1.5`, "malformed", "after: " + wantNumber},
	{`"type":"subscribe","stream":"orders","after":-1`, "invalid_start", "after: want a position, 0 or more"},
	{`"type":"subscribe","stream":"orders","after":1,"from":"end"`, "invalid_start", ""},
	{`"type":"subscribe","stream":"orders","at":"yesterday"`, "malformed", "at: want a time as RFC 3339 writes it, such as 2027-01-31T12:00:00Z"},
	{`"type":"subscribe","stream":"orders","from":"now"`, "invalid_start", "from: want start or end"},
	{`"type":"subscribe","stream":"orders","credits":1073741825`, "invalid_credits", "credits: want a number from 0 to 1073741824"},
	{`"type":"subscribe","stream":"orders","query":{}`, "malformed", "query: want either a stream or a query, not both"},
	{`"type":"unsubscribe","stream":"orders"`, "not_subscribed", ""},
	{`"type":"commit","stream":"orders","group":"g"`, "malformed", "position: want a whole number, 0 or more"},
	{`"type":"commit","stream":"orders","position":1`, "invalid_name", "group: " + wantName},
	{`"type":"enqueue","queue":"jobs","payload":"x","priority":10`, "invalid", "priority: want a number from 0 to 9"},
	{`"type":"enqueue","queue":"jobs","payload":"x","unique_ms":1000`, "malformed", "unique_key: want a string that is not empty"},
	{`"type":"enqueue","queue":"jobs","payload":"x","unique_key":"k","unique_ms":999`, "invalid_duration", "unique_ms: want a number from 1000 to 600000"},
	{`"type":"enqueue","queue":"jobs","messages":[{"payload":"x"}],"unique_key":"k","unique_ms":1000`, "invalid", "messages: want one message beside unique_key"},
	{`"type":"ack","queue":"jobs","delivery":"t"`, "not_consuming", ""},
	{`"type":"ack","queue":"jobs"`, "malformed", "delivery: want a string here, or 1 to 1000 of them in deliveries"},
	{`"type":"ack","queue":"jobs","delivery":"a","deliveries":["b"]`, "malformed", "delivery: want either delivery or deliveries, not both"},
	{`"type":"ack","queue":"jobs","deliveries":[` + strings.Repeat(`"",`, 1000) + `""]`, "too_many_messages", ""},
	{`"type":"nack","queue":"jobs","deliveries":["a", "b",3 ]`, "malformed", "deliveries[2]: " + wantText},
	{`"type":"nack","queue":"jobs","delivery":"a","reason":"` + strings.Repeat("x", 1025) + `"`, "invalid", "reason: want at most 1024 bytes"},
	{`"type":"nack","queue":"jobs","delivery":"a","dead":true,"delay_ms":5`, "invalid", "dead: want no delay_ms beside it"},
	{`"type":"extend","queue":"jobs","delivery":"a"`, "invalid_duration", "lease_ms: want a number from 1 to 86400000"},
	{`"type":"credit","n":1`, "malformed", "subscription: want either subscription or queue"},
	{`"type":"credit","n":1,"queue":"jobs","subscription":"orders"`, "malformed", "subscription: want either subscription or queue"},
	{`"type":"credit","n":1,"queue":"jobs"`, "not_consuming", ""},
	{`"type":"credit","n":1,"subscription":"orders"`, "not_subscribed", ""},
	{`"type":"append","events":[{"type":"a","tags":["x",1]}]`, "malformed", "events[0].tags[1]: " + wantText},
	{`"type":"append","events":[{"type":"a"}],"condition":{"query":{},"after":"1"}`, "malformed", "condition.after: " + wantNumber},
	{`"type":"query","backwards":1`, "malformed", "backwards: want true or false"},
	{`"type":"project","queries":[{"items":[{},{"tags":{}}]}]`, "malformed", "queries[0].items[1].tags: want an array"},
	{`"type":"append"`, "invalid", ""},
	{`"type":"append","events":5`, "malformed", ""},
	{`"type":"append","store":"none","events":[{}]`, "not_found", ""},
	{`"type":"append","events":[{"type":"T"}],"store":"` + strings.Repeat("n", 129) + `"`, "invalid_name", ""},
	{`"type":"append","events":[{"type":"T","data_base64":"!"}]`, "malformed", ""},
	{`"type":"append","events":[{"type":"T","data":1,"data_base64":"AA=="}]`, "malformed", ""},
	{`"type":"append","events":[` + strings.Repeat(`{"type":"T"},`, 1000) + `{}]`, "invalid", ""},
	{`"type":"append","events":[{"type":"T"}],"condition":{"qeury":{}}`, "unknown_field", ""},
	{`"type":"append","events":[{"type":"T"}],"condition":{"query":{},"after":-1}`, "invalid", ""},
	{`"type":"subscribe","query":{},"subscription":"s","from":"middle"`, "invalid_start", ""},
	{`"type":"subscribe","query":{},"subscription":"s","from":"end","after":1`, "invalid_start", ""},
	{`"type":"query","limit":0`, "invalid", ""},
	{`"type":"query","after":-1`, "invalid", ""},
	{`"type":"project"`, "invalid", ""},
	{`"type":"subscribe","query":{}`, "invalid_name", ""},
	{`"type":"subscribe","query":{},"subscription":"s","group":"g"`, "invalid_start", ""},
	{`"type":"subscribe","query":{},"subscription":"s","credits":-1`, "invalid_credits", ""},
	{`"type":"subscribe","stream":"orders","share":true`, "invalid", "share: want a group beside it"},
	{`"type":"subscribe","stream":"orders","share":1`, "malformed", "share: want true or false"},
	{`"type":"subscribe","stream":"orders","keys":"k"`, "malformed", "keys: want an array"},
	{`"type":"subscribe","stream":"orders","keys":[1]`, "malformed", "keys[0]: want a string"},
	{`"type":"subscribe","stream":"orders","keys":[]`, "malformed", "keys: want 1 to 100 keys"},
	{`"type":"subscribe","stream":"orders","keys":["a",""]`, "invalid", "keys[1]: want a key of 1 to 1024 bytes"},
	{`"type":"subscribe","stream":"orders","keys":["` + strings.Repeat("k", 1025) + `"]`, "invalid", "keys[0]: want a key of 1 to 1024 bytes"},
	{`"type":"subscribe","stream":"orders","keys":[` + strings.Repeat(`"k",`, 100) + `"k"]`, "invalid", "keys: want at most 100 keys"},
	{`"type":"subscribe","stream":"orders","headers":"h"`, "malformed", "headers: want an object"},
	{`"type":"subscribe","stream":"orders","headers":{}`, "malformed", "headers: want 1 to 10 headers"},
	{`"type":"subscribe","stream":"orders","headers":{"a":1}`, "malformed", "headers.a: want a string"},
	{`"type":"subscribe","stream":"orders","headers":{` + strings.Join(numbered(11, `"h%d":"x"`), ",") + `}`, "invalid", "headers: want at most 10 headers"},
	{`"type":"subscribe","stream":"orders","partition":1`, "unknown_field", "partition: subscribe has no such field"},
	{`"type":"commit","stream":"orders","group":"g","partition":-1,"position":1`, "malformed", ""},
	{`"type":"commit","stream":"orders","group":"g","partition":0,"position":1`, "fenced", ""},
	{`"type":"commit","stream":"orders","group":"other","partition":3,"position":1`, "fenced", ""},
	{`"type":"commit","stream":"orders","group":"g","partition":1.5,"position":1`, "malformed", ""},
	{`"type":"commit","stream":"orders","group":"g","share":true,"position":1`, "unknown_field", ""},
	{`"type":"commit","stream":"orders","group":"g","partition":2147483648,"position":1`, "malformed", ""},
	{`"type":"subscribe","stream":"none","group":"g","share":true`, "not_found", ""},
	{`"type":"subscribe","stream":"jobs","group":"g","share":true`, "queue_stream", ""},
	{`"type":"subscribe","stream":"none","group":"g","share":true,"from":"start"`, "invalid_start", ""},
	{`"type":"subscribe","stream":"none","group":"tidewire.g","share":true`, "invalid_name", ""},
	{`"type":"subscribe","subscription":"e","query":{},"share":true`, "malformed", ""},
	{`"type":"subscribe","subscription":"e","query":{},"keys":["a"]`, "malformed", ""},
	{`"type":"subscribe","subscription":"e","query":{},"headers":{"a":"b"}`, "malformed", ""},
	{`"type":"subscribe","stream":"none","group":"g","share":true,"credits":-1`, "invalid_credits", ""},
	{`"type":"subscribe","stream":"none","group":"g","share":true,"query":{"items":[]}`, "malformed", ""},
	{`"type":"subscribe","stream":"none","group":"g","share":false,"subscription":"one"`, "not_found", ""},
}

// wrongChats is the same for the messages of chats, on /ws and /ws/chat.
var wrongChats = []struct{ fields, code, want string }{
	{`"type":"join","room":7`, "malformed", "room: " + wantText}, {`"type":"join","on_lag":"disconect"`, "malformed", "on_lag: want gap or disconnect"},
	{`"type":"join","presence":"yes"`, "malformed", "presence: want true or false"}, {`"type":"join","after":-1`, "malformed", "after: want a whole number, 0 or more"},
	{`"type":"join","history":1.5`, "malformed", "history: want a whole number, 0 or more"}, {`"type":"chat"`, "malformed", "text: " + wantText}, {`"type":"chat","text":null`, "malformed", "text: " + wantText},
	{`"type":"join","user":"` + strings.Repeat("n", 129) + `"`, "name_too_long", ""},
}

// wrongBodies is the same for requests by HTTP.
var wrongBodies = []struct{ path, body, code, want string }{
	{"streams/orders/messages", `{"messages":[{"payload":"a"},{"paylod":"b"}]}`, "unknown_field", "messages[1].paylod: there is no such field here"},
	{"streams/orders/messages", `[]`, "malformed", "want a JSON object"},
	{"streams/orders/messages", `{"payload":}`, "malformed", "not JSON: invalid character '}' looking for beginning of value, at byte 12"},
	{"streams/orders/messages", "{\"payload\":\"\xff\"}", "malformed", "not UTF-8: want JSON, which is UTF-8"},
	{"streams/orders/messages", `{"payload":"a","id":[]}`, "malformed", "id: want a string or number of at most 128 bytes"},
	{"streams/new", `{"keyed":"yes"}`, "malformed", "keyed: want true or false"},
	{"streams/orders/groups/g/commit", `{}`, "malformed", "position: want a whole number, 0 or more"},
	{"streams/nothing/groups/g/commit", `{"position":1}`, "not_found", `there is no stream "nothing", or no group "g" of it`},
	{"queues/new", `{"max_attempts":-1}`, "invalid", "max_attempts: want a number from 1 to 1048576"},
	{"queues/new", `{"priorities":11}`, "invalid", "priorities: want a number from 2 to 10"},
	{"queues/new", `{"partitions":65}`, "invalid", "partitions: want a number from 1 to 64"},
	{"queues/new", `{"partitions":2,"priorities":2}`, "invalid", "partitions: want either priorities or partitions, not both"},
	{"queues/jobs/receive?max=1001", `{}`, "invalid_parameter", "max: want a number from 1 to 1000"},
	{"queues/jobs/receive?maxx=1", `{}`, "invalid_parameter", `"maxx": the URL of this request has no such parameter: want max, wait_ms`},
	{"queues/jobs/ack?x", `{}`, "invalid_parameter", `"x": the URL of this request has no such parameter: want none`},
	{"queues/jobs/dead/redrive", `{"filter":{"since":"yesterday"}}`, "malformed", "filter.since: want a time as RFC 3339 writes it, such as 2027-01-31T12:00:00Z"},
	{"queues/jobs/dead/redrive", `{"filter":{"reasn":"x"}}`, "unknown_field", "filter.reasn: this request has no such field"},
	{"queues/jobs/dead/purge", `{"filter":{"key":""}}`, "malformed", "filter: want at least one field that selects, or all (true) in place of filter"},
	{"queues/nothing/messages", `{"payload":"x"}`, "not_found", `there is no queue "nothing"`},
	{"events/query", `{"query":1}`, "malformed", "query: want an object"},
}

// TestWrong_NamesTheField: the answer to what is wrong names the field.
func TestWrong_NamesTheField(t *testing.T) {
	t.Parallel()
	_, _, _, addr := serveAll(t)
	for path, tables := range map[string][][]struct{ fields, code, want string }{"/ws": {wrongFields, wrongChats}, "/ws/chat": {wrongChats}} {
		c := &wire{socket: dial(t, "ws://"+addr+path), t: t}
		for _, rows := range tables {
			for _, row := range rows {
				if a := c.refusedWith(`{"id":"x",` + row.fields + `}`); a.Type != "error" || a.Code != row.code || a.ID != "x" || row.want != "" && a.Message != row.want {
					t.Errorf("%s %.90s: %+v, want %s, %s", path, row.fields, a, row.code, row.want)
				}
			}
		}
	}
	for _, row := range wrongBodies {
		_, text := client{t, addr}.do("POST", "/v1/"+row.path, row.body)
		var got struct{ Error answered }
		if err := json.Unmarshal([]byte(text), &got); err != nil || got.Error.Code != row.code || got.Error.Message != row.want {
			t.Errorf("%s %s: %+v, %v; want %s, %s", row.path, row.body, got.Error, err, row.code, row.want)
		}
	}
	c := connect(t, addr) // many libraries write null for a field that is not set
	send(t, c.socket, `{"id":null,"type":"publish","stream":"orders","payload":"unasked"}`)
	c.ask(`{"id":1,"type":"publish","stream":"orders","payload":"asked"}`, `{"type":"ok","id":1,"position":2}`)
}

// TestMalformed_IsAnsweredAsFarAsItCanBeRead: a request is answered with its id although the rest is invalid JSON, or nested too deeply.
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
	c := &wire{socket: dial(t, "ws://"+addr+"/ws/chat"), t: t}
	send(t, c.socket, `{"id":1,"ID":2,"a":}`)
	c.pong()
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
			(&wire{socket: talker, t: t}).want(`{"code":"malformed","id":2,"message":"not UTF-8: want JSON, which is UTF-8","retryable":false,"type":"error"}`)
			talker.Queue(websocket.OpBinary, []byte(`{"type":"chat","room":"`+room+`","text":"é","id":3}`))
			talker.Flush()
			heard(t, talker, "3")
			if got := member.next(); !strings.Contains(got, `"text":"é"`) {
				t.Errorf("%s: a member of %s got %q", path, room, got)
			}
		}
	}
}
