// Package websocket is a WebSocket server's side of RFC 6455, made for many
// small messages on many connections, and enough of a client to test and to
// measure it.
package websocket
