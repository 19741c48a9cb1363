package queue

import (
	"context"
	"fmt"
	"time"
)

const (
	// largeJournal is from how many bytes on a journal gives the free end of its
	// file back, which keeps writers out for a moment. A long snapshot made it
	// that large.
	largeJournal = 64 << 20
	// vacuumShare is the share of the time that may be spent with VACUUM, as one
	// part of so many. While a snapshot keeps the deleted rows each has more to
	// look at and nothing to remove.
	vacuumShare = 20
)

// tend removes the deleted rows of journals that this Node began anew, one
// journal after the other, until ctx ends. Nobody waits for it, and it waits for
// nobody; what it leaves is left to the next time, or to autovacuum.
func (n *Node) tend(ctx context.Context) {
	for {
		select {
		case <-n.litter:
		case <-ctx.Done():
			return
		}
		for _, p := range n.parts {
			if !p.tidies() {
				continue
			}
			began := time.Now()
			err := p.vacuum(ctx)
			if ctx.Err() != nil {
				return
			}
			p.tidied(err)
			if pause(ctx, vacuumShare*time.Since(began)) != nil {
				return
			}
		}
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

// tidies reports whether the part's journal has rows to be removed, and notes
// that this is being done.
func (n *part) tidies() (due bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	due, n.littered = n.littered, false
	return due
}

// tidied takes in what became of a VACUUM.
func (n *part) tidied(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err != nil {
		n.cfg.Log.Info("journal not vacuumed, left to autovacuum", "queue", n.queue.Name(), "error", err)
		return
	}
	n.node.stats.Vacuums++
}

// vacuum removes deleted rows of the journal that no snapshot needs. VACUUM
// cannot be a part of a transaction.
func (n *part) vacuum(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var size int64
	if err := n.queue.pool.QueryRow(ctx, journalSizeSQL, n.queue.id).Scan(&size); err != nil {
		return err
	}
	_, err := n.queue.pool.Exec(ctx, fmt.Sprintf(vacuumFmt, n.queue.id, size >= largeJournal))
	return err
}
