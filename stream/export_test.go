package stream

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Round applies the retention of each stream once.
func (k *RetentionWorker) Round(ctx context.Context) error { return k.round(ctx) }

// RotateRequests does what an Appender, or the committer, does every minute.
func RotateRequests(ctx context.Context, pool *pgxpool.Pool, s *Stream) error {
	if s.storage.shared() {
		return rotateShared(ctx, pool)
	}
	return rotateRequests(ctx, pool, s.id)
}

// Writer and Batch are the types with which an Appender writes.
type (
	Writer = batchWriter
	Batch  = rowBatch
)

// LockMessages is the lock of the messages table.
const LockMessages = lockMessages

// NewWriter returns a Writer to the table messages.
func NewWriter(pool *pgxpool.Pool, cfg WriterConfig) *Writer { return newTableWriter(pool, "", cfg) }

// NewTableWriter returns a Writer to another table of messages.
func NewTableWriter(pool *pgxpool.Pool, name string, cfg WriterConfig) *Writer {
	return newTableWriter(pool, name, cfg)
}
