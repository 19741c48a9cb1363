package stream

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/streamwriter"
)

// ingestWriter adapts a batchWriter to the interface that package ingest uses.
type ingestWriter struct{ *batchWriter }

func (w ingestWriter) Write(ctx context.Context, b streamwriter.Batch) error {
	return w.batchWriter.Write(ctx, b.(*rowBatch))
}

func init() {
	streamwriter.NewBatch = func() streamwriter.Batch { return new(rowBatch) }
	streamwriter.New = func(pool *pgxpool.Pool, cfg streamwriter.Config) streamwriter.Writer {
		method := Auto
		if cfg.Copy {
			method = Copy
		}
		return ingestWriter{newTableWriter(pool, cfg.Table, WriterConfig{Method: method, Log: cfg.Log})}
	}
}
