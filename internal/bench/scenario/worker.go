package scenario

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/bench"
)

// A worker process of a queue or pubsub run either writes or reads, so that
// nothing measured passes through the memory of one process. It gets orders and
// reports events as lines of JSON on its standard input and output.

// WorkerConfig is the first line that a worker process gets.
type WorkerConfig struct {
	Role     string `json:"role"` // writers or readers
	Database string `json:"database"`
	QueueLoad
}

// order is each later line.
type order struct {
	Do   string `json:"do"`             // begin, measure, end, stop
	Sent []int  `json:"sent,omitempty"` // with stop: how many messages each writer has sent
}

// event is a line that a worker process prints.
type event struct {
	Ready  bool          `json:"ready,omitempty"`
	Error  string        `json:"error,omitempty"`
	Tick   *tick         `json:"tick,omitempty"`
	Report *workerReport `json:"report,omitempty"`
}

// tick is the progress of a worker process.
type tick struct {
	Count  int `json:"count"`
	Errors int `json:"errors"`
	// Outstanding is how many messages of writers are due or sent, and not answered.
	Outstanding int `json:"outstanding,omitempty"`
	// Recent has the latencies of about one second, once a second.
	Recent *bench.Histogram `json:"recent,omitempty"`
}

// workerReport is the report of a worker process at its end.
type workerReport struct {
	Phases   [phases]*tally  `json:"phases"`
	Sent     []int           `json:"sent,omitempty"`     // of each writer: messages that may be stored
	Late     int             `json:"late,omitempty"`     // messages that were due and not sent
	Accounts []bench.Account `json:"accounts,omitempty"` // one for each group
	// Received is how many bytes a server has sent to the readers, 0 without a server.
	Received int64 `json:"received,omitempty"`
}

// tickPeriod is the interval of ticks. Every recentEvery ticks, one has
// latencies.
const (
	tickPeriod  = 200 * time.Millisecond
	recentEvery = 5
)

// runner is the work of a worker process.
type runner interface {
	// run works until ctx ends, and then completes what it has started.
	run(ctx context.Context) error
	meters() meters
	report(sent []int) *workerReport
}

// RunPart is the main function of a worker process. It executes the orders that it reads from in.
func RunPart(ctx context.Context, in io.Reader, out io.Writer) error {
	p := &worker{lines: json.NewDecoder(bufio.NewReader(in)), out: json.NewEncoder(out)}
	if err := p.serve(ctx); err != nil {
		return errors.Join(err, p.say(event{Error: err.Error()}))
	}
	return nil
}

type worker struct {
	lines *json.Decoder

	mu  sync.Mutex
	out *json.Encoder
}

func (p *worker) say(e event) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.Encode(e)
}

func (p *worker) serve(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var cfg WorkerConfig
	if err := p.lines.Decode(&cfg); err != nil {
		return fmt.Errorf("read what to do: %w", err)
	}
	r, closeRunner, err := newRunner(ctx, cfg)
	if err != nil {
		return err
	}
	defer closeRunner()
	if err := p.say(event{Ready: true}); err != nil {
		return err
	}
	return p.obey(ctx, r)
}

// newRunner connects to the database. The caller calls end at the end.
func newRunner(ctx context.Context, cfg WorkerConfig) (r runner, end func(), err error) {
	if err := CheckStrategies(cfg.Mode, []string{cfg.Strategy}); err != nil {
		return nil, nil, err
	}
	pool, err := openPool(ctx, cfg.Database, cfg.connections(cfg.Role))
	if err != nil {
		return nil, nil, err
	}
	var stop func()
	switch {
	case cfg.Role == "writers":
		r, stop, err = newWriters(ctx, pool, cfg.QueueLoad)
	case cfg.Role == "readers" && cfg.Ungrouped:
		r, stop, err = newWatchers(ctx, cfg.QueueLoad)
	case cfg.Role == "readers":
		r, stop, err = newReaders(ctx, pool, cfg.QueueLoad)
	default:
		err = fmt.Errorf("role is %q: want writers or readers", cfg.Role)
	}
	if err != nil {
		pool.Close()
		return nil, nil, err
	}
	return r, func() { stop(); pool.Close() }, nil
}

func openPool(ctx context.Context, url string, conns int) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("database URL: %w", err)
	}
	cfg.MaxConns = int32(conns)
	return pgxpool.NewWithConfig(ctx, cfg)
}

// obey executes the orders: begin, measure, end, stop, in this sequence. If the
// parent ends, the input ends, and so does the process.
func (p *worker) obey(ctx context.Context, r runner) error {
	work, end := context.WithCancel(ctx)
	defer end()
	var ticking sync.WaitGroup
	defer ticking.Wait()
	defer end()
	done := make(chan error, 1)
	for {
		var o order
		if err := p.lines.Decode(&o); err != nil {
			end()
			return fmt.Errorf("read orders: %w", err)
		}
		switch o.Do {
		case "begin":
			go func() { done <- r.run(work) }()
			ticking.Go(func() { p.tick(work, r) })
		case "measure":
			r.meters().enter(measured)
		case "end": // of the measured phase
			r.meters().enter(drain)
		case "stop":
			end()
			err := <-done
			ticking.Wait()
			if err != nil {
				return err
			}
			return p.say(event{Report: r.report(o.Sent)})
		default:
			return fmt.Errorf("order is %q: want begin, measure, end or stop", o.Do)
		}
	}
}

func (p *worker) tick(ctx context.Context, r runner) {
	t := time.NewTicker(tickPeriod)
	defer t.Stop()
	for n := 1; ; n++ {
		select {
		case <-t.C:
			now := tick{}
			now.Count, now.Errors = r.meters().counts()
			if o, ok := r.(interface{ outstanding() int }); ok {
				now.Outstanding = o.outstanding()
			}
			if n%recentEvery == 0 {
				now.Recent = r.meters().takeRecent()
			}
			if p.say(event{Tick: &now}) != nil {
				return
			}
		case <-ctx.Done():
			return
		}
	}
}
