// Package streamwriter lends package ingest the writer of package stream, without
// making it a part of that package's API: stream registers it here when it is
// initialised, as the standard library's log does in log/internal. Import stream,
// if only for that.
package streamwriter

import (
	"context"
	"log/slog"

	"github.com/jackc/pgx/v5/pgxpool"
)

// New and NewBatch are set by package stream, and by nobody else.
var (
	// New returns a Writer to a table of messages; it connects when it first writes.
	New func(pool *pgxpool.Pool, cfg Config) Writer
	// NewBatch returns an empty batch.
	NewBatch func() Batch
)

// Config configures a Writer.
type Config struct {
	// Table is where it writes, as ingest's Config.Table says. Defaults to messages.
	Table string
	// Copy has all batches written by COPY, also small ones.
	Copy bool
	// Log receives a line for each attempt that failed. Defaults to none.
	Log *slog.Logger
}

// Writer writes batches in position order: stream's batchWriter.
type Writer interface {
	// Write returns when the batch is committed. Its batch is one of NewBatch.
	Write(ctx context.Context, b Batch) error
	Close()
}

// Batch gathers rows in the form in which COPY takes them: stream's rowBatch.
type Batch interface {
	// Append copies a payload into the batch.
	Append(payload []byte)
	// Len is the number of rows.
	Len() int
	// Reset empties the batch. It keeps its memory if that is at most keep bytes.
	Reset(keep int)
}

// RowOverhead is what a row takes in a Batch beyond its payload, in bytes.
const RowOverhead = 18
