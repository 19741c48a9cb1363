package scenario

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/eventstore"
	"github.com/tidewire/tidewire/internal/bench"
	"github.com/tidewire/tidewire/migrate"
)

// EventsConfig configures Events.
type EventsConfig struct {
	Datasets    []string
	Ops         []string
	Concurrency []int
	Batch       []int // events in one append
	// Wire says how callers talk to a node.
	Wire bench.WireConfig
	// Connections is the number of connections to a node that the callers share, or 0: each has one.
	Connections int
	// Streams is the number of event stores that callers append to, in turn. All but the
	// first begin empty. More than one works only with StreamsOps. Defaults to 1.
	Streams int
	// PastEvents is how many events partly match a condition that holds.
	// ConflictEvents is how many events a failing condition finds.
	PastEvents     int
	ConflictEvents []int

	WarmUp   time.Duration // of each row
	Duration time.Duration // of each row
	Repeat   int

	Database EventsDatabase
	// Compare is a second PostgreSQL on which each row is also measured, or nil.
	Compare *EventsDatabase
	// Serve starts a node on a database, for the rows that use one.
	Serve    func(ctx context.Context, url string) (*ServerProcess, error)
	Progress func(format string, args ...any)
	// Control steers the run. May be nil.
	Control *bench.Control
	// Ceiling searches for the highest rate of calls that one database keeps up
	// with; nil: callers send the next call when the last is answered.
	Ceiling *Ceiling

	through func(*eventstore.Store) eventLog // wraps the store that is called; may be nil
}

// events returns what the callers call.
func (cfg EventsConfig) events(store *eventstore.Store) eventLog {
	if cfg.through == nil {
		return store
	}
	return cfg.through(store)
}

// EventsDatabase is a PostgreSQL to measure.
type EventsDatabase struct {
	Pool *pgxpool.Pool
	URL  string
}

// StreamsOps are the operations that can be measured with several event stores.
var StreamsOps = []string{"append", "appendif"}

// CheckEvents returns an error that names unknown datasets or operations.
func CheckEvents(sets, ops []string) error {
	for _, name := range sets {
		if _, ok := datasets[name]; !ok {
			return fmt.Errorf("dataset %q is none of %s", name, strings.Join(slices.Sorted(maps.Keys(datasets)), ", "))
		}
	}
	for _, name := range ops {
		if !slices.Contains(EventsOps, name) {
			return fmt.Errorf("operation %q is none of %s", name, strings.Join(EventsOps, ", "))
		}
	}
	return nil
}

// limitCallers are the numbers of callers of projectionlimits. limitProjections
// is the limit of concurrent projections.
var limitCallers = []int{5, 8, 10}

const limitProjections = 5

// smallDataset is the size up to which every row begins with a fresh store. For
// larger datasets, only operations that write do.
const smallDataset = 100_000

// Events measures the operations of an event store. The result lacks only the
// description of the machine.
func Events(ctx context.Context, cfg EventsConfig, result *bench.Result) error {
	about, err := bench.CapturePostgreSQL(ctx, cfg.Database.Pool)
	if err != nil {
		return fmt.Errorf("describe PostgreSQL: %w", err)
	}
	result.Environment.PostgreSQL = about
	databases := []EventsDatabase{cfg.Database}
	if cfg.Compare != nil {
		databases = append(databases, *cfg.Compare)
	}
	var sides []*eventsSide
	for _, db := range databases {
		side, err := newEventsSide(ctx, cfg, db, result)
		if err != nil {
			return err
		}
		defer side.close()
		side.compared = len(sides) > 0
		sides = append(sides, side)
	}
	steps, cells := cfg.steps()
	var done cell // the cell that was measured last
	return cfg.Control.Run(ctx, result, steps, func(ctx context.Context, s bench.Step) error {
		c := cells[s.Row]
		first := done.op != c.op || done.dataset != c.dataset
		done = cell{}
		measure := measureCell
		if cfg.Ceiling != nil {
			measure = ceilingOfCell
		}
		if err := measure(ctx, sides, c, s.Trial, first, result); err != nil {
			return fmt.Errorf("%s: %w", c.name(), err)
		}
		done = c
		return nil
	})
}

// measureCell measures a row on each side, one after the other.
func measureCell(ctx context.Context, sides []*eventsSide, c cell, trial int, first bool, result *bench.Result) error {
	var m map[string]float64
	for i, side := range sides {
		side.trial = trial
		got, err := side.measure(ctx, c, first)
		if err != nil {
			return err
		}
		checkMeasured(result, c.name(), got["calls_per_second"], "calls/s")
		if i == 0 {
			m = got
			continue
		}
		m["compare_calls_per_second"] = got["calls_per_second"]
		m["compare_latency_p50_ms"] = got["latency_p50_ms"]
		m["compare_latency_p99_ms"] = got["latency_p99_ms"]
		if m["calls_per_second"] > 0 {
			m["gain"] = got["calls_per_second"] / m["calls_per_second"]
		}
	}
	describe := eventsOps[c.op].describe
	if c.op == projectionLimits {
		describe = fmt.Sprintf("Project, all callers at once, %d allowed", limitProjections)
	}
	addTrial(result, c.name(), describe, m, 0)
	return nil
}

// eventsSide is one of the PostgreSQL servers that are measured.
type eventsSide struct {
	cfg        EventsConfig
	pool       *pgxpool.Pool
	url        string
	result     *bench.Result
	postmaster int
	compared   bool // the second side; its records have another prefix
	trial      int
	row        string       // replaces the cell's name, or ""
	rate       float64      // calls a second at times fixed in advance; 0: as fast as possible
	unsent     atomic.Int64 // calls that were due and not made

	store   *eventstore.Store
	others  []*eventstore.Store
	set     string // the dataset in the store
	limited bool   // the store limits concurrent projections
	loaded  int    // number of events after loading
	clean   bool   // nothing was appended after loading
}

func newEventsSide(ctx context.Context, cfg EventsConfig, db EventsDatabase, result *bench.Result) (*eventsSide, error) {
	if _, err := migrate.Up(ctx, db.Pool); err != nil {
		return nil, err
	}
	postmaster, err := backendParent(ctx, db.Pool)
	return &eventsSide{cfg: cfg, pool: db.Pool, url: db.URL, result: result, postmaster: postmaster}, err
}

// close drops the event stores.
func (s *eventsSide) close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	s.closeStores(ctx)
	if err := dropEvents(ctx, s.pool); err != nil {
		s.cfg.Progress("the store %q was not dropped: %v", eventsStore, err)
	}
}

// load makes the store hold exactly the dataset.
func (s *eventsSide) load(ctx context.Context, c cell, first bool) error {
	d := datasets[c.dataset]
	limited := c.op == projectionLimits
	same := s.store != nil && s.set == c.dataset && s.limited == limited
	if same && (s.clean || !first && d.size() > smallDataset) {
		return nil
	}
	if err := s.closeStores(ctx); err != nil {
		return err
	}
	config := eventstore.Config{MaxConcurrentProjections: 10_000, NoAnnounce: true}
	if limited {
		config.MaxConcurrentProjections = limitProjections
	}
	client, err := eventstore.Open(ctx, s.pool, config)
	if err != nil {
		return err
	}
	s.store, s.loaded, err = freshEvents(ctx, s.pool, client, d, s.cfg.PastEvents, s.cfg.ConflictEvents, s.cfg.Progress)
	s.set, s.limited, s.clean = c.dataset, limited, true
	for n := 1; n < s.cfg.Streams && err == nil; n++ {
		var other *eventstore.Store
		if other, err = client.Ensure(ctx, fmt.Sprint(eventsStore, "-", n)); err == nil {
			s.others = append(s.others, other)
		}
	}
	return err
}

// stores returns all stores that callers append to.
func (s *eventsSide) stores() []*eventstore.Store {
	if s.store == nil {
		return nil
	}
	return append([]*eventstore.Store{s.store}, s.others...)
}

func (s *eventsSide) closeStores(ctx context.Context) error {
	var errs []error
	for _, store := range s.stores() {
		errs = append(errs, store.Close(ctx))
	}
	s.store, s.others = nil, nil
	return errors.Join(errs...)
}

// callers returns the callers of a row. If they use a serving node, its process
// is returned as well. hangUp ends both.
func (s *eventsSide) callers(ctx context.Context, c cell) (callers []*eventsCaller, node *ServerProcess, hangUp func() error, err error) {
	var clients []*bench.Wire
	hangUp = func() error {
		closeAll(clients)
		if node != nil {
			return node.Stop()
		}
		return nil
	}
	if eventsOps[c.op].wire {
		if node, err = s.cfg.Serve(ctx, s.url); err != nil {
			return nil, nil, hangUp, err
		}
	}
	stores := s.stores()
	for i := range c.concurrency {
		one := &eventsCaller{
			store: s.cfg.events(stores[i%len(stores)]), number: i, batch: max(c.batch, 1), conflict: c.conflict, random: rand.New(rand.NewPCG(uint64(i), 3)),
		}
		if node != nil {
			if share := s.cfg.Connections; share == 0 || len(clients) < share {
				client, err := bench.DialWireAs(ctx, node.URL("/ws"), s.cfg.Wire)
				if err != nil {
					return nil, nil, hangUp, err
				}
				clients = append(clients, client)
			}
			one.wire = clients[i%len(clients)]
		}
		callers = append(callers, one)
	}
	return callers, node, hangUp, nil
}

// measure measures one row.
func (s *eventsSide) measure(ctx context.Context, c cell, first bool) (_ map[string]float64, err error) {
	if err := s.load(ctx, c, first); err != nil {
		return nil, err
	}
	s.cfg.Progress("%s", s.rowOf(c))
	callers, node, hangUp, err := s.callers(ctx, c)
	defer func() { err = errors.Join(err, hangUp()) }()
	if err != nil {
		return nil, err
	}
	if eventsOps[c.op].writes {
		s.clean = false
	}
	tallies := []*tallyEvents{newTallyEvents(), newTallyEvents()}
	s.unsent.Store(0)
	var phase atomic.Int32
	work, stop := context.WithCancel(ctx)
	defer stop()
	var running sync.WaitGroup
	s.start(work, &running, c, callers, func() *tallyEvents { return tallies[phase.Load()] })
	if err := sleep(ctx, s.cfg.WarmUp); err != nil {
		return nil, err
	}
	before, err := s.reading(ctx)
	if err != nil {
		return nil, err
	}
	sampler := bench.StartSampler(ctx, node.pid(), s.postmaster)
	phase.Store(1)
	began := time.Now()
	pulse := s.pulse(ctx, c, sampler, tallies[1])
	err = sleep(ctx, s.cfg.Duration)
	phase.Store(0)
	ended := time.Now()
	pulse.Stop()
	usage := sampler.Stop()
	if err != nil {
		return nil, err
	}
	after, err := s.reading(ctx)
	if err != nil {
		return nil, err
	}
	stop()
	running.Wait()
	before.at, after.at = began, ended // the readings themselves take time
	m := after.metrics(before, tallies[1], max(c.batch, 1), eventsOps[c.op].writes, c.op == projectionLimits)
	s.usage(m, usage, node != nil)
	if s.rate > 0 {
		m["unsent"] = float64(s.unsent.Load())
	}
	s.result.Recording.Latencies(s.rowOf(c), s.trial, s.prefix(), tallies[1].latency)
	return m, s.check(ctx, c, callers, tallies)
}

// start makes the callers call until ctx ends. tally returns where to count a call
// that has ended now.
func (s *eventsSide) start(ctx context.Context, running *sync.WaitGroup, c cell, callers []*eventsCaller, tally func() *tallyEvents) {
	if c.op == projectionLimits {
		running.Go(func() {
			for ctx.Err() == nil {
				projectRound(context.WithoutCancel(ctx), callers, tally)
			}
		})
		return
	}
	call := eventsOps[c.op].call
	start := time.Now()
	for i, caller := range callers {
		running.Go(func() {
			sleeper := bench.NewSleeper()
			defer sleeper.Close()
			pace := newPace(start, QueueLoad{Writers: len(callers), Batch: 1, Rate: s.rate}, i, sleeper.Until)
			n := 0
			for ; ; n++ {
				due, _, ok := pace.wait(ctx, n)
				if !ok {
					break
				}
				err := call(context.WithoutCancel(ctx), caller)
				tally().add(time.Since(due), err)
			}
			if s.rate > 0 {
				s.unsent.Add(int64(pace.missed(n)))
			}
		})
	}
}

// rowOf returns the name of the row that is being measured.
func (s *eventsSide) rowOf(c cell) string { return cmp.Or(s.row, c.name()) }

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// check verifies that the store holds exactly what was acknowledged.
func (s *eventsSide) check(ctx context.Context, c cell, callers []*eventsCaller, tallies []*tallyEvents) error {
	errs := append(slices.Clone(tallies[0].errs), tallies[1].errs...)
	s.result.Check(s.rowOf(c)+": every answer is right", len(errs) == 0, "%v", errs)
	if !eventsOps[c.op].writes {
		return nil
	}
	for _, caller := range callers {
		s.loaded += caller.appended
	}
	stored := 0
	for _, store := range s.stores() {
		var n int
		err := s.pool.QueryRow(ctx, fmt.Sprintf(`SELECT count(*) FROM tidewire.events_%d`, store.ID())).Scan(&n)
		if err != nil {
			return fmt.Errorf("count events: %w", err)
		}
		stored += n
	}
	s.result.Check(s.rowOf(c)+": events stored equal events answered", stored == s.loaded, "%d stored, %d answered", stored, s.loaded)
	return nil
}
