// Package conformance says what every engine has to do, as exchanges over the wire: requests, and what is answered. [Run] has a server
// answer them. A second engine passes when the server that it is the engine of does.
//
// A transcript is a file in transcripts/. It is run on one WebSocket, line after line:
//
//	# a comment
//	POST /v1/streams/orders {"keyed":true}     an HTTP request, with a body if there is one
//	200 {"stream":"orders","keyed":true}       its answer
//	→ {"type":"publish",…}                     a message to /ws
//	← {"type":"ok","id":1,"position":1}        what comes next, in any order among the lines after one request
//
// Answers are compared as JSON. The text "…" stands for any value; in a request, "delivery":"…" is the delivery that came last.
package conformance
