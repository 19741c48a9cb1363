package scenario

import (
	"context"
	"time"

	"github.com/tidewire/tidewire/internal/bench"
	"github.com/tidewire/tidewire/internal/wire"
)

// watchers is the worker process whose subscribers read a stream, in groups of one, and commit nothing.
type watchers struct {
	load    QueueLoad
	watch   *bench.Watch
	all     meters
	ledgers []*bench.DeliveryChecker // one for each subscriber
	pattern []byte
	ages    []time.Duration
}

func newWatchers(ctx context.Context, load QueueLoad) (runner, func(), error) {
	r := &watchers{load: load, all: newMeters(1), pattern: bench.AppendStamped(nil, 0, 0, time.Time{}, load.Payload)}
	for range load.groups() {
		r.ledgers = append(r.ledgers, bench.NewDeliveryChecker(load.origins()))
	}
	var err error
	r.watch, err = bench.NewWatch(ctx, bench.WatchConfig{
		URL: load.Server, Encoding: wire.EncodingOf(load.Encoding), Clients: load.groups(), Got: r.got,
		Subscribe: func(out *wire.Writer) {
			text(out, "type", "subscribe")
			text(out, "stream", load.streamName(0))
			text(out, "from", "start")
		},
	})
	if err != nil {
		return nil, nil, err
	}
	return r, r.watch.Close, nil
}

func (r *watchers) meters() meters { return r.all }

func (r *watchers) run(ctx context.Context) error { return r.watch.Run(ctx) }

// got records the messages of one read. It is called by one goroutine.
func (r *watchers) got(client int, payloads [][]byte) {
	now := time.Now()
	r.ages = r.ages[:0]
	ledger := r.ledgers[client]
	for _, p := range payloads {
		writer, seq, at, ok := bench.ParseStamped(p, r.pattern)
		if !ok {
			ledger.Foreign()
			continue
		}
		ledger.Read(writer, seq)
		r.ages = append(r.ages, now.Sub(at))
	}
	r.all[0].read(0, r.ages)
}

func (r *watchers) report(sent []int) *workerReport {
	report := &workerReport{Phases: r.all.sum(), Received: r.watch.Received()}
	for _, l := range r.ledgers {
		report.Accounts = append(report.Accounts, l.Balance(sent))
	}
	return report
}
