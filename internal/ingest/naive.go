package ingest

import (
	"context"
	"log/slog"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/ingestlog"
)

// NaiveConnections is how many INSERTs of the naive strategy run at the same
// time, each on its own connection: PostgreSQL's default allows 97.
const NaiveConnections = 80

// naive writes in the goroutine of the connection: the next message is handled
// after the last one is committed.
type naive struct {
	inserters chan *ingestlog.Inserter // idle ones
	wrote     func(rows int)
	log       *slog.Logger
}

func newNaive(pool *pgxpool.Pool, cfg Config, wrote func(int)) *naive {
	n := &naive{inserters: make(chan *ingestlog.Inserter, NaiveConnections), wrote: wrote, log: cfg.Log}
	for range max(1, min(NaiveConnections, int(pool.Config().MaxConns)-poolReserve)) {
		n.inserters <- ingestlog.NewInserter(pool, ingestlog.InserterConfig{Table: cfg.Table, Log: cfg.Log})
	}
	return n
}

func (n *naive) submit(ctx context.Context, src *Source, first uint64, payloads [][]byte) (int, error) {
	for i := range payloads {
		var inserter *ingestlog.Inserter
		select {
		case inserter = <-n.inserters:
		case <-ctx.Done():
			return i, ctx.Err()
		}
		err := inserter.Insert(ctx, payloads[i:i+1])
		n.inserters <- inserter
		if err != nil {
			err = explain(n.log, 1, err)
			src.failed(1, err)
			return i + 1, err
		}
		n.wrote(1)
		src.committed(first+uint64(i), first+uint64(i)+1)
	}
	return len(payloads), nil
}

func (n *naive) run(ctx, _ context.Context) {
	<-ctx.Done()
	for range len(n.inserters) {
		(<-n.inserters).Close()
	}
}
