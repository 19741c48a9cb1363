// Package gateway serves the HTTP and WebSocket endpoints. It uses the stores
// through the interfaces of package engine. docs/protocol.md
// describes the wire protocol.
package gateway
