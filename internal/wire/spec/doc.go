// Package spec describes the wire: every message of /ws and every request of /v1, with their fields, limits and errors. From it
// come the documents that a server serves, OpenAPI (/v1/openapi.json) and AsyncAPI (/v1/asyncapi.json), and the pages
// docs/reference/messages.md and http.md. A field is described once, here.
//
// What is where:
//
//   - fields.go: the fields of requests, by wire.Field. A new field of a request needs a line there.
//   - requests.go: the requests of /ws. Which fields they have is in wire.Requests.
//   - pushes.go: what the server sends without a request, and objects.go what several messages have.
//   - routes_*.go: the requests of /v1.
//   - errors.go: the codes of errors.
//
// The tests of internal/gateway hold the server to it: what it sends and accepts is as described here, and everything described here
// occurs in these tests.
package spec
