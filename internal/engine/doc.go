// Package engine is the seam between the edge, package gateway, and what keeps messages: it
// names what an engine can do (streams, queues, events, stored rooms, ingest), the types of that, and the errors
// that clients are told of, with their codes on the wire.
//
// Package engine/postgres is the engine on PostgreSQL. An engine maps its errors to those of this package, once; the
// gateway adds the HTTP status and its own errors.
package engine
