package spec

import "encoding/json"

// Example is a message of a client as a reader can send it, with names of its own in place of orders, mail and lobby.
type Example struct {
	Name    string // what it does
	Payload json.RawMessage
}

// Examples returns examples of the request, at least one. A server accepts each of them: it may say that there is no such stream, but not
// that the message is malformed.
func (r *Request) Examples() []Example { return examples[r.Type] }

var examples = map[string][]Example{
	"auth": {{"send a token", json.RawMessage(`{"type":"auth","id":1,"token":"a token or an API key"}`)}},
	"publish": {
		{"publish a message", json.RawMessage(`{"type":"publish","id":1,"stream":"orders","key":"customer-7","payload":"hello"}`)},
		{"publish several, which can be repeated", json.RawMessage(`{"type":"publish","id":1,"stream":"orders","client":"me","sequence":1,"messages":[{"payload":"one"},{"payload":"two"}]}`)},
	},
	"subscribe": {
		{"follow a stream", json.RawMessage(`{"type":"subscribe","id":1,"stream":"orders","from":"start","credits":100}`)},
		{"follow a stream as a group", json.RawMessage(`{"type":"subscribe","id":1,"stream":"orders","subscription":"readers","group":"readers","credits":100}`)},
		{"follow events", json.RawMessage(`{"type":"subscribe","id":1,"subscription":"events","query":{"items":[{"tags":["course:c1"]}]},"credits":100}`)},
	},
	"unsubscribe": {{"end a subscription", json.RawMessage(`{"type":"unsubscribe","id":1,"subscription":"orders"}`)}},
	"credit":      {{"allow more messages", json.RawMessage(`{"type":"credit","id":1,"subscription":"orders","n":100}`)}},
	"commit":      {{"move the offset of a group", json.RawMessage(`{"type":"commit","id":1,"stream":"orders","group":"readers","position":1}`)}},
	"enqueue": {
		{"enqueue a message", json.RawMessage(`{"type":"enqueue","id":1,"queue":"mail","payload":"hello"}`)},
		{"enqueue a message for later", json.RawMessage(`{"type":"enqueue","id":1,"queue":"mail","payload":"hello","delay_ms":60000}`)},
	},
	"consume": {{"consume a queue", json.RawMessage(`{"type":"consume","id":1,"queue":"mail","credits":1,"begin":true}`)}},
	"begin":   {{"the work begins", json.RawMessage(`{"type":"begin","id":1,"queue":"mail","deliveries":["that of the delivery"]}`)}},
	"ack":     {{"the work is done", json.RawMessage(`{"type":"ack","id":1,"queue":"mail","delivery":"that of the delivery"}`)}},
	"nack":    {{"the work failed", json.RawMessage(`{"type":"nack","id":1,"queue":"mail","delivery":"that of the delivery","reason":"timeout"}`)}},
	"extend":  {{"the work takes longer", json.RawMessage(`{"type":"extend","id":1,"queue":"mail","delivery":"that of the delivery","lease_ms":30000}`)}},
	"cancel":  {{"end a consumer", json.RawMessage(`{"type":"cancel","id":1,"queue":"mail"}`)}},
	"append": {
		{"append an event", json.RawMessage(`{"type":"append","id":1,"events":[{"type":"CourseOffered","tags":["course:c1"],"data":{"seats":30}}]}`)},
		{"append on a condition", json.RawMessage(`{"type":"append","id":1,"events":[{"type":"StudentEnrolled","tags":["course:c1","student:s1"]}],"condition":{"query":{"items":[{"types":["StudentEnrolled"],"tags":["course:c1","student:s1"]}]},"after":0}}`)},
	},
	"query":   {{"read events", json.RawMessage(`{"type":"query","id":1,"query":{"items":[{"types":["StudentEnrolled"],"tags":["course:c1"]}]},"backwards":true,"limit":10}`)}},
	"project": {{"count events", json.RawMessage(`{"type":"project","id":1,"queries":[{"items":[{"tags":["course:c1"]}]}]}`)}},
	"join":    {{"join a room", json.RawMessage(`{"type":"join","id":1,"room":"lobby","user":"ann","presence":true}`)}},
	"chat":    {{"send a chat", json.RawMessage(`{"type":"chat","id":1,"room":"lobby","user":"ann","text":"hello"}`)}},
	"leave":   {{"leave a room", json.RawMessage(`{"type":"leave","id":1,"room":"lobby"}`)}},
	"ping":    {{"ask for a sign of life", json.RawMessage(`{"type":"ping","ts":1}`)}},
	"pong":    {{"give a sign of life", json.RawMessage(`{"type":"pong","ts":1}`)}},
}
