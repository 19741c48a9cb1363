package scenario

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/bench"
)

// readers is the worker process that reads.
type readers struct {
	load    QueueLoad
	side    readSide
	sources []source
	all     meters
	ledgers []*bench.DeliveryChecker // one for each group
	pattern []byte
}

func newReaders(ctx context.Context, pool *pgxpool.Pool, load QueueLoad) (runner, func(), error) {
	side, err := sidesOf(load).reader(ctx, pool, load)
	if err != nil {
		return nil, nil, err
	}
	r := &readers{load: load, side: side, all: newMeters(min(load.sources(), maxMeters)), pattern: bench.AppendStamped(nil, 0, 0, time.Time{}, load.Payload)}
	stop := func() {
		for _, s := range r.sources {
			s.close()
		}
		side.close()
	}
	for range load.groups() {
		r.ledgers = append(r.ledgers, bench.NewDeliveryChecker(load.origins()))
	}
	for i := range load.sources() {
		s, err := side.open(ctx, i)
		if err != nil {
			stop()
			return nil, nil, err
		}
		r.sources = append(r.sources, s)
	}
	return r, stop, nil
}

// maxMeters limits the number of meters, whose histograms take about 100 KiB each.
// More readers share them.
const maxMeters = 64

func (r *readers) meters() meters { return r.all }

func (r *readers) report(sent []int) *workerReport {
	report := &workerReport{Phases: r.all.sum()}
	if over, ok := r.side.(*wireReader); ok {
		report.Received = over.received()
	}
	for _, l := range r.ledgers {
		report.Accounts = append(report.Accounts, l.Balance(sent))
	}
	return report
}

func (r *readers) run(ctx context.Context) error {
	failed := make([]error, len(r.sources))
	var reading sync.WaitGroup
	for i := range r.sources {
		reading.Go(func() { failed[i] = r.read(ctx, i) })
	}
	reading.Wait()
	return errors.Join(failed...)
}

// read is one reader. A message counts as read when that is recorded.
func (r *readers) read(ctx context.Context, number int) error {
	s, ledger := r.sources[number], r.ledgers[number%r.load.groups()]
	var ages []time.Duration
	for {
		asked := time.Now()
		payloads, err := s.receive(ctx)
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("reader %d: %w", number, err)
		}
		now := time.Now()
		ages = ages[:0]
		for _, p := range payloads {
			writer, seq, at, ok := bench.ParseStamped(p, r.pattern)
			if !ok {
				ledger.Foreign()
				continue
			}
			ledger.Read(writer, seq)
			ages = append(ages, now.Sub(at))
		}
		if err := s.ack(context.WithoutCancel(ctx)); err != nil {
			return fmt.Errorf("reader %d: acknowledge: %w", number, err)
		}
		r.all[number%len(r.all)].read(time.Since(asked), ages)
	}
}
