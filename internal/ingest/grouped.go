package ingest

import (
	"context"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/pg"
	"github.com/tidewire/tidewire/internal/streamwriter"
	_ "github.com/tidewire/tidewire/stream" // registers its writer
)

// maxBatchBytes bounds one batch. There are two batches: with 8 MiB each,
// PostgreSQL is busy with one while the other gathers, and larger ones gain
// nothing (docs/explanation/strategies.md).
const maxBatchBytes = 8 << 20

// grouped is group commit: the strategy of copy and auto.
type grouped struct {
	cfg    Config
	writer streamwriter.Writer
	group  *pg.Group[groupedBatch]
	wrote  func(rows int)

	// answers passes the marks of committed batches to the goroutine that
	// answers the sources, so that the next batch is written at the same time.
	answers chan []mark
	spare   chan []mark
}

type groupedBatch struct {
	id    uint64
	rows  streamwriter.Batch
	marks []mark
}

func newGroupedBatch(id uint64) *groupedBatch {
	return &groupedBatch{id: id, rows: streamwriter.NewBatch()}
}

// mark is the range of a source's messages in a batch.
type mark struct {
	src        *Source
	first, end uint64
}

func newGrouped(pool *pgxpool.Pool, cfg Config, wrote func(int)) *grouped {
	maxBytes := min(maxBatchBytes, cfg.MaxInflightBytes/2)
	return &grouped{
		cfg:     cfg,
		writer:  streamwriter.New(pool, streamwriter.Config{Table: cfg.Table, Copy: cfg.Mode == Copy, Log: cfg.Log}),
		group:   pg.NewGroup(newGroupedBatch(1), newGroupedBatch(2), cfg.Batch, maxBytes),
		wrote:   wrote,
		answers: make(chan []mark, 1),
		spare:   make(chan []mark, 2),
	}
}

func (g *grouped) submit(ctx context.Context, src *Source, first uint64, payloads [][]byte) (int, error) {
	bytes := 0
	for _, p := range payloads {
		bytes += len(p) + streamwriter.RowOverhead
	}
	err := g.group.Add(ctx, len(payloads), bytes, func(b *groupedBatch) {
		for _, p := range payloads {
			b.rows.Append(p)
		}
		b.mark(src, first, first+uint64(len(payloads)))
	})
	if err != nil {
		return 0, err
	}
	return len(payloads), nil
}

// mark records the range of a source: one entry per source, which grows with
// each submit.
func (b *groupedBatch) mark(src *Source, first, end uint64) {
	if src.batch == b.id {
		b.marks[src.mark].end = end
		return
	}
	src.batch, src.mark = b.id, len(b.marks)
	b.marks = append(b.marks, mark{src, first, end})
}

func (g *grouped) run(ctx, work context.Context) {
	var answering sync.WaitGroup
	answering.Go(func() {
		for marks := range g.answers {
			for _, m := range marks {
				m.src.committed(m.first, m.end)
			}
			clear(marks)
			select {
			case g.spare <- marks[:0]:
			default:
			}
		}
	})
	g.group.Run(ctx, work, g.commit)
	close(g.answers)
	answering.Wait()
	g.writer.Close()
}

func (g *grouped) commit(ctx context.Context, b *groupedBatch) {
	rows, marks := b.rows.Len(), b.marks
	err := g.writer.Write(ctx, b.rows)
	b.id += 2 // the other batch has the numbers in between
	b.rows.Reset(2 * maxBatchBytes)
	b.marks = nil
	select {
	case b.marks = <-g.spare:
	default:
	}
	if err != nil {
		err = explain(g.cfg.Log, rows, err)
		for _, m := range marks {
			m.src.failed(int(m.end-m.first), err)
		}
		return
	}
	g.wrote(rows)
	g.answers <- marks
}
