// Package wsproxy is a proxy for WebSocket connections that breaks them at chosen messages: it cuts a connection before or after a
// message, drops a message, delays it, or stops forwarding. So a test of a client can hit each moment of an exchange, every time it runs.
//
// It reads frames (RFC 6455) and the type of messages, in JSON and in CBOR, and forwards the bytes as they came. Connections that are
// not upgraded to WebSocket are forwarded without looking at them.
package wsproxy
