// Package gateway is the edge: HTTP and WebSocket endpoints before the
// stores, which it sees through small interfaces of its own. The wire is
// described in docs/reference/protocol.md.
package gateway
