package scenario

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tidewire/tidewire/internal/bench"
)

// A run without groups has no readers. When its writers have ended, it reads back
// everything that is stored, and compares it with what was acknowledged.

// storedSide reads what a run has stored. Safe for concurrent use.
type storedSide interface {
	// count is how many streams, or partitions, there are.
	count() int
	// read calls each with all messages of stream n, in position order.
	read(ctx context.Context, n int, each func(position int64, payload []byte)) (storedEnd, error)
}

// storedEnd describes the end of a stream, as the product reports it.
type storedEnd struct {
	head int64 // position of its last message
	// dense: the product promises that positions have no gaps.
	dense bool
}

// stock is the outcome of reading back.
type stock struct {
	account bench.Account
	streams int // or partitions
	dense   int // number of those whose positions may have no gaps
	// wrongEnds counts the streams whose last message is not at the head, or whose
	// positions do not rise. holes counts the missing positions of dense streams.
	wrongEnds, holes int64
}

// readBackConcurrency is the number of streams that are read at the same time.
const readBackConcurrency = 4

// published ends a run without readers: it reads back what is stored.
func (r *queueRun) published(ctx context.Context, took time.Duration, usage map[bench.Role]bench.Usage, pulse *bench.Ticker) (m map[string]float64, written *workerReport, err error) {
	if written, err = r.writers.finish(ctx, nil); err != nil {
		return nil, nil, err
	}
	pulse.Stop()
	side, err := sidesOf(r.cfg.QueueLoad).stored(ctx, r.cfg.Pool, r.cfg.QueueLoad)
	if err != nil {
		return nil, nil, fmt.Errorf("read back what is stored: %w", err)
	}
	s, err := r.readBack(ctx, side, written.Sent)
	if err != nil {
		return nil, nil, fmt.Errorf("read back what is stored: %w", err)
	}
	m = r.metrics(took, usage, written)
	m["rows_verified"] = float64(s.account.Read)
	accountMetrics(m, s.account)
	r.checkErrors(written)
	r.checkStock(s)
	r.record("write_", written.Phases[measured].Latency)
	return m, written, nil
}

// readBack reads every stream from its beginning to its end.
func (r *queueRun) readBack(ctx context.Context, side storedSide, sent []int) (stock, error) {
	load := r.cfg.QueueLoad
	ledger := bench.NewDeliveryChecker(load.origins())
	pattern := bench.AppendStamped(nil, 0, 0, time.Time{}, load.Payload)
	s := stock{streams: side.count()}
	var dense, wrongEnds, holes atomic.Int64
	reading, ctx := errgroup.WithContext(ctx)
	reading.SetLimit(readBackConcurrency)
	for n := range s.streams {
		reading.Go(func() error {
			last, messages, rising := int64(0), int64(0), true
			end, err := side.read(ctx, n, func(position int64, payload []byte) {
				rising = rising && position > last
				last = position
				messages++
				if origin, seq, _, ok := bench.ParseStamped(payload, pattern); ok {
					ledger.Read(origin, seq)
				} else {
					ledger.Foreign()
				}
			})
			if err != nil {
				return err
			}
			if last != end.head || !rising {
				wrongEnds.Add(1)
			}
			if end.dense {
				dense.Add(1)
				holes.Add(max(0, end.head-messages))
			}
			return nil
		})
	}
	if err := reading.Wait(); err != nil {
		return stock{}, err
	}
	s.account = ledger.Balance(sent)
	s.dense, s.wrongEnds, s.holes = int(dense.Load()), wrongEnds.Load(), holes.Load()
	r.cfg.Progress("%s: read back from the streams or partitions, %d of them: %s", r.row, s.streams, s.account)
	return s, nil
}

// checkStock verifies that each published message is stored once, and that heads and
// positions are right.
func (r *queueRun) checkStock(s stock) {
	r.result.Check(r.row+": every message stored once", s.account.OK() && s.account.Read > 0, "%s", s.account)
	r.result.Check(r.row+": every head is its last message's position", s.wrongEnds == 0,
		"%d of %d heads are not, or positions do not rise", s.wrongEnds, s.streams)
	if s.dense > 0 {
		r.result.Check(r.row+": no holes in positions", s.holes == 0,
			"%d holes in the %d of %d streams that must not have any", s.holes, s.dense, s.streams)
	}
	if r.keepsOrder() {
		r.result.Check(r.row+": in each writer's order", s.account.Reordered == 0, "%s", s.account)
	}
}
