// Package engine is the interface between package gateway and the storage: it defines the operations of an
// engine (streams, queues, events, stored rooms, ingest), their types, and the errors that clients see, with
// their codes on the wire.
//
// Package engine/postgres is the engine on PostgreSQL. An engine maps its errors to those of this package in one
// place; the gateway adds the HTTP status and its own errors.
package engine
