// Package conformance holds every chat server that is compared, Tidewire's own
// among them, to one wire contract: docs/reference/protocol.md, section /ws/chat, as far
// as all of them serve it. It knows them by their command lines and sockets
// only.
//
// Without more, go test ./contenders/conformance tests Tidewire. Others are
// named in an environment variable, with a command line or a URL:
//
//	TIDEWIRE_CONTENDERS='go-gorilla=/path/to/program --flag,other=ws://127.0.0.1:8080/ws'
//
// The command line gets flags after it: --port, --duration, --rate-limit,
// --rate-burst, --ping-interval, --pong-timeout; numbers are plain decimals, times
// in seconds. A server that a URL names goes through the cases of the wire alone,
// and has to be started with a rate limit that they do not meet.
package conformance
