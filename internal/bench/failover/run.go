package failover

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tidewire/tidewire/internal/bench"
	"github.com/tidewire/tidewire/internal/bench/scenario"
	"github.com/tidewire/tidewire/internal/embedpg"
)

// Config configures Run.
type Config struct {
	Quorum     bool // commits wait for the standby
	Promotions int
	Seed       uint64 // seed of the faults; the speed of clients and servers does not depend on it
	Faults     []Fault
	Pace       time.Duration // average time between two requests of a client

	PostgreSQL embedpg.Config // of both servers, without a directory
	Dir        string         // of their data and of the nodes' logs
	// Serve starts a node on a database.
	Serve func(ctx context.Context, log io.Writer, database string) (*scenario.ServerProcess, error)
	// Control steers the run. May be nil.
	Control *bench.Control
	// Progress is called with lines about the progress.
	Progress func(format string, args ...any)
}

// nodes is the number of Tidewire nodes.
const nodes = 2

// Name returns the name of the kind of replication in results.
func (cfg Config) Name() string {
	if cfg.Quorum {
		return "quorum"
	}
	return "asynchronous"
}

// run is the state of one Run.
type run struct {
	cfg     Config
	result  *bench.Result
	pair    *Pair
	servers []*scenario.ServerProcess
	logs    []*os.File // of the servers
	ledger  *Ledger
	load    *load

	streams     []string
	queue       string
	subscribers []*subscriber
	readers     []*reader
	settled     *settlement
	lostOfQueue map[int64]bool
	accounts    *accounts
	// acknowledged counts the acknowledged messages of /ws/ingest. lost counts how many of these are lost, and the lost
	// positions of streams and events.
	acknowledged, lost int

	writing, reading sync.WaitGroup // clients

	pauses, outages map[Fault][]float64 // in milliseconds
}

// Run makes PostgreSQL fail over under load, and adds rows and checks to the result.
func Run(ctx context.Context, cfg Config, result *bench.Result) (err error) {
	r := &run{
		cfg: cfg, result: result, ledger: NewLedger(), settled: newSettlement(), lostOfQueue: make(map[int64]bool),
		accounts: &accounts{}, streams: []string{"orders", "prices"}, queue: "jobs", pauses: make(map[Fault][]float64), outages: make(map[Fault][]float64),
	}
	defer func() { err = errors.Join(err, r.close(context.WithoutCancel(ctx))) }()
	if err := r.prepare(ctx); err != nil {
		return err
	}
	if err := r.underLoad(ctx); err != nil {
		return err
	}
	if err := r.check(ctx); err != nil {
		return err
	}
	r.report()
	return nil
}

// underLoad makes the promotions while clients are active. All clients have ended when it returns.
func (r *run) underLoad(ctx context.Context) error {
	clients, stop := context.WithCancel(ctx)
	pulse := r.result.Recording.StartPulse(ctx, r.cfg.Name(), 0, nil, func() bench.Counters {
		return r.load.answerTimes.counters(r.ledger.counted(countErrors))
	})
	defer pulse.Stop()
	r.cfg.Control.Phase(bench.PhaseMeasured)
	r.startClients(clients)
	err := r.promotions(ctx)
	close(r.load.ending)
	if err != nil {
		stop()
		err = errors.Join(err, r.stopNodes()) // otherwise requests would wait for a PostgreSQL that does not come back
	}
	r.writing.Wait()
	if err == nil {
		err = r.settleDown(ctx)
	}
	stop()
	r.reading.Wait()
	return err
}

// prepare starts PostgreSQL and the nodes, and creates the streams, queues and stores of the
// clients.
func (r *run) prepare(ctx context.Context) (err error) {
	r.cfg.Progress("%s: starting two PostgreSQL servers and %d nodes", r.cfg.Name(), nodes)
	if r.pair, err = StartPair(ctx, r.cfg.PostgreSQL, r.cfg.Dir, r.cfg.Quorum); err != nil {
		return err
	}
	database, err := r.pair.Address()
	if err != nil {
		return err
	}
	r.load = &load{ledger: r.ledger, answerTimes: &answerTimes{latency: bench.NewHistogram()}, pace: r.cfg.Pace, ending: make(chan struct{})}
	for i := range nodes {
		log, err := os.Create(filepath.Join(r.cfg.Dir, fmt.Sprintf("node-%d.log", i+1)))
		if err != nil {
			return err
		}
		r.logs = append(r.logs, log)
		server, err := r.cfg.Serve(ctx, log, database)
		if err != nil {
			return err
		}
		r.servers = append(r.servers, server)
		r.load.nodes = append(r.load.nodes, server.Address())
	}
	for _, path := range []string{"/v1/streams/" + r.streams[0], "/v1/streams/" + r.streams[1], "/v1/queues/" + r.queue} {
		var made json.RawMessage
		if err := call(ctx, "POST", r.load.nodes[0], path, &made); err != nil {
			return err
		}
	}
	return nil
}

// startClients starts all clients, half of them on each node.
func (r *run) startClients(ctx context.Context) {
	number := 0
	next := func() client { number++; return client{load: r.load, number: number} }
	for range nodes {
		for _, stream := range r.streams {
			for _, producer := range []bool{false, true} {
				p := &publisher{client: next(), stream: stream, producer: producer}
				r.writing.Go(func() { p.run(ctx) })
			}
			s := &subscriber{client: next(), stream: stream}
			g := &reader{subscriber: subscriber{client: next(), stream: stream}, quorum: r.cfg.Quorum}
			g.group = fmt.Sprintf("group-%d", g.number)
			r.subscribers, r.readers = append(r.subscribers, s, &g.subscriber), append(r.readers, g)
			r.reading.Go(func() { s.run(ctx) })
			r.reading.Go(func() { g.run(ctx) })
		}
		for range 2 {
			e := &enqueuer{client: next(), queue: r.queue}
			b := &buyer{client: next(), hold: 2 * time.Second}
			r.writing.Go(func() { e.run(ctx) })
			r.writing.Go(func() { b.run(ctx) })
		}
		i := &ingester{client: next(), accounts: r.accounts}
		r.writing.Go(func() { i.run(ctx) })
		c := &consumer{client: next(), queue: r.queue, quorum: r.cfg.Quorum, settled: r.settled}
		r.reading.Go(func() { c.run(ctx) })
	}
}

// promotions makes the planned promotions, one after the other.
func (r *run) promotions(ctx context.Context) error {
	for i, p := range plan(r.cfg.Seed, r.cfg.Faults, r.cfg.Promotions) {
		pause, err := r.promote(ctx, p)
		if err != nil {
			return fmt.Errorf("%s, promotion %d, after %s: %w", r.cfg.Name(), i+1, p.fault, err)
		}
		r.cfg.Progress("%s: promotion %d of %d, after %s: every kind of request was answered again after %.2f s", r.cfg.Name(), i+1, r.cfg.Promotions, p.fault, pause.Seconds())
	}
	return nil
}

// patienceAfter is the maximum time until all kinds of requests are answered after a promotion. Otherwise a
// promise is broken.
const patienceAfter = time.Minute

// promote loses the primary and promotes the standby. pause is the time from the promotion request until all kinds
// of requests were answered.
func (r *run) promote(ctx context.Context, p promotion) (pause time.Duration, err error) {
	if err := sleep(ctx, p.calm); err != nil {
		return 0, err
	}
	if err := r.pair.disturb(ctx, p.disturb); err != nil {
		return 0, fmt.Errorf("%s: %w", p.disturb, err)
	}
	if err := sleep(ctx, p.settle); err != nil {
		return 0, err
	}
	lost := time.Now()
	if err := errors.Join(r.lose(ctx, p), sleep(ctx, p.undecided)); err != nil {
		return 0, err
	}
	all := r.load.answerTimes.arm(time.Now())
	asked, err := r.pair.Promote(ctx)
	r.ledger.Promoted(asked)
	if err != nil {
		return 0, err
	}
	if p.fault == Freeze {
		if err := r.comeback(ctx, p); err != nil {
			return 0, err
		}
	}
	if err := answeredAll(ctx, all); err != nil {
		return 0, err
	}
	pause, missing := r.load.answerTimes.took(asked)
	if len(missing) > 0 {
		r.ledger.Break(PromiseGoesOn, "%s within %v after %s", strings.Join(missing, ", "), patienceAfter, p.fault)
	}
	r.pauses[p.fault] = append(r.pauses[p.fault], float64(pause)/1e6)
	r.outages[p.fault] = append(r.outages[p.fault], float64(pause+asked.Sub(lost))/1e6)
	return pause, r.pair.Rejoin(ctx)
}

// lose makes the primary fail. If commits do not wait for the standby, it first cuts the standby off and waits until
// each kind of request is answered, so that each kind loses something.
func (r *run) lose(ctx context.Context, p promotion) error {
	if p.fault == CutOff {
		if err := r.pair.CutOff(ctx); err != nil {
			return err
		}
		all := r.load.answerTimes.arm(time.Now())
		if err := r.pair.EndWaits(ctx, p.endWaits, p.cutFor); err != nil {
			return err
		}
		if !r.cfg.Quorum {
			if err := answeredAll(ctx, all); err != nil {
				return err
			}
		}
	}
	return r.pair.lose(ctx, p.fault)
}

// answeredAll waits until each kind of request was answered, or for patienceAfter.
func answeredAll(ctx context.Context, all <-chan struct{}) error {
	select {
	case <-all:
	case <-time.After(patienceAfter):
	case <-ctx.Done():
	}
	return ctx.Err()
}

// comeback lets the frozen primary run again for a while, as a second primary.
func (r *run) comeback(ctx context.Context, p promotion) error {
	if err := sleep(ctx, p.comeback); err != nil {
		return err
	}
	r.ledger.Returned(time.Now())
	return errors.Join(r.pair.standbyServer().Thaw(ctx), sleep(ctx, p.stays))
}

// settleDown waits until the readers have received everything.
func (r *run) settleDown(ctx context.Context) error {
	r.cfg.Progress("%s: reading the remaining messages", r.cfg.Name())
	heads := make(map[string]int64)
	for _, stream := range r.streams {
		held, err := readAll(ctx, r.load.nodes[0], messagesPath(stream))
		if err != nil {
			return err
		}
		if len(held) > 0 {
			heads[stream] = held[len(held)-1].position
		}
	}
	var left []int64
	for end := time.Now().Add(patience); time.Now().Before(end); {
		var err error
		if left, err = r.unsettled(ctx); err != nil {
			return err
		}
		lagging := slices.ContainsFunc(r.subscribers, func(s *subscriber) bool { return s.at.Load() < heads[s.stream] })
		if len(left) == 0 && !lagging {
			return nil
		}
		if err := sleep(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
	for _, position := range left {
		r.ledger.Break(PromiseSettled, "%s: position %d is neither settled nor known to be lost", r.queue, position)
	}
	return nil
}

// check reads everything once more and compares it with the ledger.
func (r *run) check(ctx context.Context) error {
	bases, err := basesOf(ctx, r.pair)
	if err != nil {
		return err
	}
	if len(bases) != r.cfg.Promotions {
		r.ledger.Break(PromiseFenced, "%d histories began with %d promotions", len(bases), r.cfg.Promotions)
	}
	if err := r.checkStreams(ctx, bases); err != nil {
		return err
	}
	if err := r.checkEvents(ctx, bases); err != nil {
		return err
	}
	if err := r.checkQueue(ctx, bases); err != nil {
		return err
	}
	return r.checkIngest(ctx)
}

// stopNodes stops the nodes, unless they are stopped already.
func (r *run) stopNodes() (err error) {
	for _, s := range r.servers {
		err = errors.Join(err, s.Stop())
	}
	r.servers = nil
	return err
}

// close stops the nodes and PostgreSQL.
func (r *run) close(ctx context.Context) (err error) {
	err = r.stopNodes()
	for _, log := range r.logs {
		err = errors.Join(err, log.Close())
	}
	if r.pair != nil {
		err = errors.Join(err, r.pair.Close(ctx))
	}
	return err
}

// report adds the rows and the checks.
func (r *run) report() {
	for _, fault := range r.cfg.Faults {
		if pauses := r.pauses[fault]; len(pauses) > 0 {
			r.result.AddTrial(r.cfg.Name()+", "+string(fault), "", map[string]float64{
				"promotions": float64(len(pauses)), "pause_p50_ms": bench.Median(pauses), "pause_max_ms": slices.Max(pauses),
				"outage_p50_ms": bench.Median(r.outages[fault]), "outage_max_ms": slices.Max(r.outages[fault]),
			})
		}
	}
	m := map[string]float64{
		"promotions": float64(r.cfg.Promotions), "lost": float64(r.lost + len(r.lostOfQueue)),
	}
	r.ledger.metrics(m)
	m["acknowledged"] += float64(r.acknowledged)
	r.result.AddTrial(r.cfg.Name()+", all", "", m)
	for _, promise := range promises(r.cfg.Quorum) {
		count, first := r.ledger.Breach(promise)
		detail := "always"
		if count > 0 {
			detail = fmt.Sprintf("not so %d times: %s", count, strings.Join(first, "; "))
		}
		r.result.Check(r.cfg.Name()+": "+promise, count == 0, "%s", detail)
	}
}
