package gateway_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"unicode/utf8"

	"github.com/fxamacker/cbor/v2"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/tidewire/tidewire/internal/wire/spec"
	"github.com/tidewire/tidewire/websocket"
)

// recorded is the traffic of all tests of the package.
var recorded = newTraffic()

// traffic compares what tests send and receive with internal/wire/spec: what a server sends is as described; what it accepts is as
// described; and, at the end, all that is described has occurred. Safe for concurrent use.
type traffic struct {
	described, closed map[string]*jsonschema.Schema // by the name of a message

	mu       sync.Mutex
	asked    map[socket][]asked // requests that wait for an answer
	seen     map[string]bool    // names of what has occurred: see everything
	problems map[string]string  // by what is wrong, an example of each
}

// asked is a request that waits for an answer.
type asked struct {
	id, kind string
	message  any
}

func newTraffic() *traffic {
	return &traffic{
		described: compile(func(s *spec.Schema) *spec.Schema { return s }), closed: compile((*spec.Schema).Closed),
		asked: make(map[socket][]asked), seen: make(map[string]bool), problems: make(map[string]string),
	}
}

// schemas are those of all messages, bodies, answers and parameters, by the names that traffic gives them.
func schemas() map[string]*spec.Schema {
	all := make(map[string]*spec.Schema)
	for _, r := range spec.Requests() {
		all["request "+r.Type] = r.Schema()
		if ok := r.Ok(); ok != nil {
			all["answer "+r.Type] = ok
		}
	}
	for _, p := range spec.Pushes() {
		all["message "+p.Type] = p.Schema()
	}
	for _, o := range spec.Objects() {
		all["object "+o.Name] = o.Schema
	}
	for _, r := range spec.Routes() {
		for kind, s := range map[string]*spec.Schema{"body": r.Body, "answer": r.Answer, "data": r.Events, "query": {Properties: r.Query}, "header": {Properties: r.Headers}} {
			if s != nil {
				all[kind+" of "+r.Pattern()] = s
			}
		}
	}
	return all
}

// compile compiles the schemas, after a change to each.
func compile(change func(*spec.Schema) *spec.Schema) map[string]*jsonschema.Schema {
	objects, definitions, names := make(map[string]any), make(map[string]any), []string{}
	for _, o := range spec.Objects() {
		objects[o.Name] = change(o.Schema)
	}
	for name, s := range schemas() {
		definitions[fmt.Sprint(len(names))] = change(s)
		names = append(names, name)
	}
	text, err := json.Marshal(map[string]any{"$schema": spec.Dialect, "components": map[string]any{"schemas": objects}, "$defs": definitions})
	if err != nil {
		panic(err)
	}
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		panic(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("spec.json", document); err != nil {
		panic(err)
	}
	all := make(map[string]*jsonschema.Schema)
	for i, name := range names {
		all[name] = c.MustCompile(fmt.Sprintf("spec.json#/$defs/%d", i))
	}
	return all
}

// read reads from a connection, and records what came.
func read(from socket) ([]websocket.Message, error) {
	if w, is := from.(*wire); is {
		from = w.socket
	}
	messages, err := from.Read()
	for _, m := range messages {
		recorded.received(from, m)
	}
	return messages, err
}

// decode decodes a message, without fields that are null, and with bytes as base64 unless they are UTF-8. It returns nil if that is no object.
func decode(m websocket.Message) (fields map[string]any) {
	if m.Op == websocket.OpBinary && !json.Valid(m.Payload) {
		mode, _ := cbor.DecOptions{DefaultMapType: mapType}.DecMode()
		if mode.Unmarshal(m.Payload, &fields) != nil {
			return nil
		}
	} else {
		d := json.NewDecoder(bytes.NewReader(m.Payload))
		d.UseNumber()
		if d.Decode(&fields) != nil || d.More() {
			return nil
		}
	}
	plain, _ := plainly(fields).(map[string]any)
	return plain
}

// free are fields whose values belong to the application.
var free = []string{"headers", "data", "message", "ts"}

// plainly does for a value what decode does.
func plainly(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for name, one := range v {
			b, isBytes := one.([]byte)
			switch {
			case one == nil && name != "ts":
				delete(v, name)
			case isBytes && utf8.Valid(b):
				v[name] = string(b)
			case isBytes:
				delete(v, name)
				v[name+"_base64"] = base64.StdEncoding.EncodeToString(b)
			case !slices.Contains(free, name):
				v[name] = plainly(one)
			}
		}
	case []any:
		for i := range v {
			v[i] = plainly(v[i])
		}
	}
	return v
}

// sent records a message before it is sent.
func (t *traffic) sent(c socket, op websocket.Opcode, text []byte) {
	fields := decode(websocket.Message{Op: op, Payload: text})
	kind, _ := fields["type"].(string)
	t.mu.Lock()
	defer t.mu.Unlock()
	id, hasID := fields["id"]
	_, lanes := fields["bytes"]
	switch known := t.described["request "+kind]; {
	case lanes: // credit on /ws/lanes, which is not described
	case kind == "ping" || kind == "pong": // nothing says that they were accepted
		if known.Validate(fields) == nil {
			t.mark("request "+kind, fields)
		}
	case hasID:
		t.asked[c] = append(t.asked[c], asked{idOf(id), kind, fields})
	}
}

func idOf(id any) string {
	text, _ := json.Marshal(id)
	return string(text)
}

// received compares a message with its description.
func (t *traffic) received(c socket, m websocket.Message) {
	fields := decode(m)
	kind, _ := fields["type"].(string)
	if kind == "" {
		return // a count of /ws/ingest, or what an echo sends
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if kind == "ok" {
		t.accepted(c, fields)
		return
	}
	if _, echo := t.take(c, idOf(fields["id"]), func(a asked) bool { return reflect.DeepEqual(a.message, any(fields)) }); echo { // of /ws/lanes
		return
	}
	t.valid("message "+kind, fields)
	if kind != spec.ErrorType {
		return
	}
	code, _ := fields["code"].(string)
	t.code(code)
	if id, ok := fields["id"]; ok {
		t.take(c, idOf(id), func(asked) bool { return true })
	}
}

// accepted compares an answer, and the request that was accepted.
func (t *traffic) accepted(c socket, fields map[string]any) {
	fits := func(a asked) bool {
		s := t.closed["answer "+a.kind]
		return s != nil && s.Validate(fields) == nil
	}
	id := idOf(fields["id"])
	a, ok := t.take(c, id, fits)
	if !ok {
		a, ok = t.take(c, id, func(asked) bool { return true })
	}
	switch {
	case ok && t.described["request "+a.kind] == nil: // of an endpoint that is not described
	case ok:
		t.valid("answer "+a.kind, fields)
		if err := t.described["request "+a.kind].Validate(a.message); err != nil {
			t.problem("the server accepted a request that is not as described: "+a.kind, a.message, err)
			return
		}
		t.mark("request "+a.kind, a.message)
	default: // its request is not recorded
		for name := range t.closed {
			if kind, is := cutKind(name); is && fits(asked{kind: kind}) {
				return
			}
		}
		t.problem("the server sent an ok of no request", fields, nil)
	}
}

// take takes the first request with that id that fits.
func (t *traffic) take(c socket, id string, fits func(asked) bool) (asked, bool) {
	all := t.asked[c]
	i := slices.IndexFunc(all, func(a asked) bool { return a.id == id && fits(a) })
	if i < 0 {
		return asked{}, false
	}
	one := all[i]
	t.asked[c] = slices.Delete(all, i, i+1)
	return one, true
}

// valid compares what the server sent with its description, and marks it as seen.
func (t *traffic) valid(name string, v any) {
	s := t.closed[name]
	switch {
	case s == nil:
		t.problem("the server sent a message that is not described: "+name, v, nil)
	default:
		if err := s.Validate(v); err != nil {
			t.problem("the server sent what is not as described: "+name, v, err)
		}
	}
	t.mark(name, v)
}

// code takes note of an error.
func (t *traffic) code(code string) {
	if !slices.ContainsFunc(spec.Errors(), func(e spec.Error) bool { return e.Code == code }) {
		t.problem("the server sent the code "+code+", which internal/wire/spec/errors.go does not have", nil, nil)
	}
	t.seen["code "+code] = true
}

// problem takes note of a difference. t.mu is held.
func (t *traffic) problem(what string, v any, err error) {
	text, _ := json.Marshal(v)
	if t.problems[what] == "" {
		t.problems[what] = fmt.Sprintf("%.500s\n%v", text, err)
	}
}
