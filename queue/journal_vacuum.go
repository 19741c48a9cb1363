package queue

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/pg"
)

const (
	// largeJournal is the size in bytes from which VACUUM also truncates the table of
	// journals, which blocks writers for a moment. A long snapshot made it that large,
	// or many queues.
	largeJournal = 64 << 20
	// vacuumShare limits VACUUM to one part in vacuumShare of the time. While a
	// snapshot keeps the deleted rows, each run has more to scan and nothing to
	// remove.
	vacuumShare = 20
)

// vacuums lets the Nodes of a pool take turns: their journals are in one table.
type vacuums struct {
	turn  chan struct{} // one slot
	began time.Time     // of the last VACUUM; guarded by the slot
}

var vacuumsOf pg.PerPool[*vacuums]

// tend removes the deleted rows of journals that this Node compacted, until ctx ends, unless
// another Node has removed them already. It blocks no other work, and waits for no lock; rows
// that it skips are left to the next run, or to autovacuum.
func (n *Node) tend(ctx context.Context) {
	pool := n.queue.pool
	v := vacuumsOf.Join(pool, func() *vacuums { return &vacuums{turn: make(chan struct{}, 1)} })
	defer vacuumsOf.Leave(pool)
	for {
		select {
		case <-n.litter:
		case <-ctx.Done():
			return
		}
		since := time.Now()
		select {
		case v.turn <- struct{}{}:
		case <-ctx.Done():
			return
		}
		if v.began.Before(since) {
			v.began = time.Now()
			if err := vacuum(ctx, pool); ctx.Err() == nil { // else the stop has ended it
				n.tidied(err)
			}
			pause(ctx, vacuumShare*time.Since(v.began)) // its error is ctx's
		}
		<-v.turn
	}
}

// pause waits for d, or until ctx ends, and returns ctx's error.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	return ctx.Err()
}

// tidied counts or logs the result of a VACUUM.
func (n *Node) tidied(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err != nil {
		n.cfg.Log.Info("journals not vacuumed, left to autovacuum", "queue", n.queue.Name(), "error", err)
		return
	}
	n.stats.Vacuums++
}

// vacuum removes the deleted rows of the journals that no snapshot needs.
// VACUUM cannot run in a transaction.
func vacuum(ctx context.Context, pool *pgxpool.Pool) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var size int64
	if err := pool.QueryRow(ctx, journalSizeSQL).Scan(&size); err != nil {
		return err
	}
	_, err := pool.Exec(ctx, fmt.Sprintf(vacuumFmt, size >= largeJournal))
	return err
}
