// Package conformance specifies the behaviour of every engine as exchanges over the wire: requests and expected
// answers. [Run] plays them against a server. Another engine conforms if a server with that engine passes.
//
// A transcript is a file in transcripts/. It is run on one WebSocket, line after line:
//
//	# a comment
//	POST /v1/streams/orders {"keyed":true}     an HTTP request, with a body if there is one
//	200 {"stream":"orders","keyed":true}       its answer
//	→ {"type":"publish",…}                     a message to /ws
//	← {"type":"ok","id":1,"position":1}        the next messages; those after one request may come in any order
//
// Answers are compared as JSON. The text "…" stands for any value; in a request, "delivery":"…" is the last
// delivery received.
package conformance
