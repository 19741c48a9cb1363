// Package streamwriter gives package ingest the writer of package stream, without
// making it a part of that package's API: stream registers it here when it is
// initialised, as the standard library's log does in log/internal. So a user must
// import stream, if only for that.
package streamwriter

import (
	"context"
	"log/slog"

	"github.com/jackc/pgx/v5/pgxpool"
)

// New and NewBatch are set only by package stream.
var (
	// New returns a Writer to a table of messages; it connects when it first writes.
	New func(pool *pgxpool.Pool, cfg Config) Writer
	// NewBatch returns an empty batch.
	NewBatch func() Batch
)

// Config configures a Writer.
type Config struct {
	// Table is the table, as in ingest's Config.Table. Defaults to messages.
	Table string
	// Copy writes all batches by COPY, also small ones.
	Copy bool
	// Log receives a line for each failed attempt. Defaults to none.
	Log *slog.Logger
}

// Writer writes batches in position order. stream's batchWriter implements it.
type Writer interface {
	// Write returns when the batch is committed. The batch must come from
	// NewBatch.
	Write(ctx context.Context, b Batch) error
	Close()
}

// Batch holds rows in COPY format. stream's rowBatch implements it.
type Batch interface {
	// Append copies a payload into the batch.
	Append(payload []byte)
	// Len is the number of rows.
	Len() int
	// Reset empties the batch. It keeps its memory if that is at most keep bytes.
	Reset(keep int)
}

// RowOverhead is the size of a row in a Batch beside its payload, in bytes.
const RowOverhead = 18
