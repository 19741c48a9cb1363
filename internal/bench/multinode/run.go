package multinode

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tidewire/tidewire/internal/bench"
	"github.com/tidewire/tidewire/internal/embedpg"
)

// Config configures Run.
type Config struct {
	Nodes   int // at least 2
	Steps   int // number of faults
	Faults  []Fault
	Seed    uint64        // seed of the faults; the speed of clients and servers does not depend on it
	Pace    time.Duration // average time between two requests of a client
	Longest time.Duration // the maximum time that a fault lasts

	// ToldWithin is how long after a repair members may have to wait until they are told of missing chats, and PresentWithin until
	// watchers know who is in a room.
	ToldWithin, PresentWithin time.Duration

	PostgreSQL embedpg.Config // without a directory
	Dir        string         // of its data and of the nodes' logs
	Program    string         // path of tidewire
	// Control steers the run. May be nil.
	Control *bench.Control
	// Progress is called with lines about the progress, by one goroutine.
	Progress func(format string, args ...any)
}

// RowAll is the name of the row with all counts, and of the run in recordings.
const RowAll = "all"

// run is the state of one Run.
type run struct {
	cfg    Config
	result *bench.Result
	system system
	ledger *Ledger
	load   *load
	room   *room
	jobs   *jobs

	keepers     []*keeper
	subscribers []*subscriber

	talking, reading sync.WaitGroup // clients

	told, present map[Fault][]float64 // in milliseconds
	happened      map[Fault]int
}

// Run causes faults under load, and adds rows and checks to the result. Only one Run at a time uses a directory.
func Run(ctx context.Context, cfg Config, result *bench.Result) (err error) {
	l := NewLedger()
	r := &run{
		cfg: cfg, result: result, ledger: l, room: newRoom(l, membersOfNode*cfg.Nodes), jobs: newJobs(l),
		told: make(map[Fault][]float64), present: make(map[Fault][]float64), happened: make(map[Fault]int),
	}
	defer func() { err = errors.Join(err, r.system.close(context.WithoutCancel(ctx))) }()
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

// prepare starts PostgreSQL and the nodes, and creates the stream and the queue.
func (r *run) prepare(ctx context.Context) error {
	r.cfg.Progress("starting PostgreSQL and %d nodes", r.cfg.Nodes)
	if err := r.system.startPostgres(ctx, r.cfg.PostgreSQL, r.cfg.Dir); err != nil {
		return err
	}
	if slices.ContainsFunc(r.cfg.Faults, Fault.needsNet) {
		if err := r.system.connect(r.cfg.Nodes); err != nil {
			return err
		}
	}
	for range r.cfg.Nodes {
		if err := r.system.addNode(ctx, r.cfg.Program, r.cfg.Dir); err != nil {
			return err
		}
	}
	r.load = &load{
		nodes: r.system.nodes, ledger: r.ledger, pace: r.cfg.Pace, ending: make(chan struct{}), guests: make(map[*guest]bool),
		http: newHTTP(), latency: latencies{recent: bench.NewHistogram()},
	}
	for _, path := range []string{"/v1/streams/" + stream, "/v1/queues/" + queue} {
		if err := r.create(ctx, path); err != nil {
			return err
		}
	}
	return nil
}

// create creates what the path names.
func (r *run) create(ctx context.Context, path string) error {
	_, address := r.load.pick(0)
	var made json.RawMessage
	return r.load.call(ctx, "POST", address, path, nil, &made)
}

// membersOfNode is how many clients of each node are in the live room. One of them watches who is there, and the others talk.
const membersOfNode = 3

// startClients starts the clients of all nodes.
func (r *run) startClients(ctx context.Context) {
	number := 0
	for home := range r.cfg.Nodes {
		next := func() client { number++; return client{load: r.load, number: number, home: home} }
		for i := range membersOfNode {
			m := &member{client: next(), room: r.room, watches: i == 0}
			r.reading.Go(func() { m.run(ctx) })
		}
		for range 2 {
			k, s, c := &keeper{client: next()}, &subscriber{client: next()}, &consumer{client: next(), jobs: r.jobs}
			r.keepers, r.subscribers = append(r.keepers, k), append(r.subscribers, s)
			p, e := &publisher{next()}, &enqueuer{next()}
			for _, reads := range []func(context.Context){k.run, s.run, c.run} {
				r.reading.Go(func() { reads(ctx) })
			}
			for _, writes := range []func(context.Context){p.run, e.run} {
				r.talking.Go(func() { writes(ctx) })
			}
		}
	}
}

// underLoad causes the faults while clients are active. All clients have ended when it returns.
func (r *run) underLoad(ctx context.Context) error {
	clients, stop := context.WithCancel(ctx)
	pulse := r.result.Recording.StartPulse(ctx, RowAll, 0, nil, r.load.counters)
	defer pulse.Stop()
	r.cfg.Control.Phase(bench.PhaseMeasured)
	r.startClients(clients)
	err := r.settled(ctx)
	if err == nil {
		err = r.faults(ctx)
	}
	close(r.load.ending)
	if err == nil {
		r.awaitAnswers()
		err = r.settleDown(ctx)
	}
	if err == nil {
		r.room.check()
		r.jobs.check()
	}
	stop()
	r.talking.Wait()
	r.reading.Wait()
	return err
}

// patience is the maximum time for the clients' first requests, and for their last ones.
const patience = time.Minute

// settled waits until all members of the live room have joined, and watchers know it.
func (r *run) settled(ctx context.Context) error {
	end := time.Now().Add(patience)
	for sleep(ctx, again) == nil {
		wrong := r.room.wrong()
		if wrong == "" {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("clients do not begin within %v: %s", patience, wrong)
		}
	}
	return ctx.Err()
}

// report adds the rows and the checks.
func (r *run) report() {
	for _, f := range Faults {
		if r.happened[f] == 0 {
			continue
		}
		m := map[string]float64{"faults": float64(r.happened[f]), "presence_p50_ms": bench.Median(r.present[f]), "presence_max_ms": slices.Max(r.present[f])}
		if told := r.told[f]; len(told) > 0 {
			m["told_p50_ms"], m["told_max_ms"] = bench.Median(told), slices.Max(told)
		}
		r.result.AddTrial(string(f), "", m)
	}
	m := map[string]float64{"faults": float64(r.cfg.Steps)}
	r.ledger.metrics(m)
	r.result.AddTrial(RowAll, "", m)
	for _, promise := range promises {
		count, first := r.ledger.Breach(promise)
		detail := "always"
		if count > 0 {
			detail = fmt.Sprintf("not so %d times: %s", count, strings.Join(first, "; "))
		}
		r.result.Check(promise, count == 0, "%s", detail)
	}
}
