// Package wire reads and writes the messages of /ws and the bodies of /v1: their fields, in JSON and in CBOR.
//
// One table (fields.go, requests.go) says which fields a request has. Both encodings are read through the
// interface reader, so that a field is described once. A Reader of either encoding makes no garbage: strings of a
// request are parts of the message that it was read from.
package wire
