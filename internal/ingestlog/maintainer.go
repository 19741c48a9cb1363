package ingestlog

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/tidewire/tidewire/internal/pg"
)

// summariseRows is how many rows may be written before the BRIN index for
// readers is updated. Up to that many rows, and the last unfinished range, are
// read without the index.
const summariseRows = 50_000

// Maintainer keeps the BRIN index of a table of messages summarised, and once an
// hour deletes the batch rows of dead writers, as a RetentionWorker does.
type Maintainer struct {
	db      pg.DB
	sql     string // summarises the index
	log     *slog.Logger
	written atomic.Int64
	due     chan struct{}
	block   int64 // first block that may not be summarised; used only by Run
}

// NewMaintainer returns a Maintainer of the table; "" is the default table.
// Call Run to start it.
func NewMaintainer(db pg.DB, table string, log *slog.Logger) (*Maintainer, error) {
	t, err := pg.IngestTable(table)
	if err != nil {
		return nil, err
	}
	sql := fmt.Sprintf(summariseFmt, t.Quoted(pg.SuffixIndex), t.Quoted(""))
	return &Maintainer{db: db, sql: sql, log: log, due: make(chan struct{}, 1)}, nil
}

// Wrote counts committed rows. Safe for concurrent use.
func (m *Maintainer) Wrote(rows int) {
	if m.written.Add(int64(rows)) >= summariseRows {
		select {
		case m.due <- struct{}{}:
		default:
		}
	}
}

// Run summarises the index when enough rows were written, until ctx ends. A
// failure is only logged: readers are slower until the next time.
func (m *Maintainer) Run(ctx context.Context) {
	sweep := time.NewTimer(rand.N(time.Minute)) // random, because processes may start at the same time
	defer sweep.Stop()
	for {
		what, err := "", error(nil)
		select {
		case <-m.due:
			what, err = "the index of the message table was not summarised", m.summarise(ctx)
		case <-sweep.C:
			what, err = "old batch marks not deleted", pg.SweepBatches(ctx, m.db)
			sweep.Reset(pg.SweepEvery)
		case <-ctx.Done():
			return
		}
		if err != nil && ctx.Err() == nil {
			m.log.Warn(what, "error", err)
		}
	}
}

func (m *Maintainer) summarise(ctx context.Context) error {
	m.written.Store(0)
	var ranges int
	var next *int64 // NULL: no range is complete yet
	if err := m.db.QueryRow(ctx, m.sql, m.block).Scan(&ranges, &next); err != nil {
		return err
	}
	if next != nil {
		m.block = *next
	}
	return nil
}
