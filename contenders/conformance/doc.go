// Package conformance checks that every compared chat server, including Tidewire's,
// follows one wire contract: the part of docs/protocol.md, section
// /ws/chat, that all of them implement. It uses only their command lines and
// sockets.
//
// By default, go test ./contenders/conformance tests Tidewire. An environment
// variable names other servers, with a command line or a URL:
//
//	TIDEWIRE_CONTENDERS='go-gorilla=/path/to/program --flag,other=ws://127.0.0.1:8080/ws'
//
// The test appends flags to the command line: --port, --duration, --rate-limit,
// --rate-burst, --ping-interval, --pong-timeout; numbers are plain decimals, times
// in seconds. A server that is given by URL is only tested with the wire cases.
// Start it with a rate limit that these do not reach.
package conformance
