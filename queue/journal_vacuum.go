package queue

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/pg"
)

const (
	// largeJournal is from how many bytes on the table of journals gives the free end of
	// its file back, which keeps writers out for a moment. A long snapshot made it
	// that large, or many queues.
	largeJournal = 64 << 20
	// vacuumShare is the share of the time that may be spent with VACUUM, as one
	// part of so many. While a snapshot keeps the deleted rows each has more to
	// look at and nothing to remove.
	vacuumShare = 20
)

// vacuums has the Nodes of a pool, whose journals are in one table, take turns.
type vacuums struct {
	turn  chan struct{} // one slot
	began time.Time     // of the last one; for whoever has the slot
}

var vacuumsOf pg.PerPool[*vacuums]

// tend removes the deleted rows of journals that this Node began anew, until ctx ends, unless
// another Node has removed them already. Nobody waits for it, and it waits for
// nobody; what it leaves is left to the next time, or to autovacuum.
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
			if err := vacuum(ctx, pool); ctx.Err() == nil { // else it was ended by a stop
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

// tidied takes in what became of a VACUUM.
func (n *Node) tidied(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err != nil {
		n.cfg.Log.Info("journals not vacuumed, left to autovacuum", "queue", n.queue.Name(), "error", err)
		return
	}
	n.stats.Vacuums++
}

// vacuum removes deleted rows of the journals that no snapshot needs. VACUUM
// cannot be a part of a transaction.
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
