package gateway

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidewire/tidewire/internal/budget"
	"github.com/tidewire/tidewire/internal/engine"
)

const (
	// pullLeases is how many deliveries of a queue HTTP clients may hold
	// unsettled.
	pullLeases = 10_000
	// pullIdle is how long an unused pull consumer stays open.
	pullIdle = 30 * time.Second
	// pullRest is how long a pull consumer keeps more credits than its clients request: a
	// client that polls continuously need not wait for a claim each time.
	pullRest = 250 * time.Millisecond
	// openTimeout bounds opening a consumption; a receive waits for that
	// regardless of its wait_ms.
	openTimeout = 5 * time.Second
)

var errTooManyLeases = errors.New("gateway: too many unsettled deliveries")

// pullConsumers lease messages to HTTP clients, with one pullConsumer for each queue in use.
// The deliveries belong to the pullConsumer: they outlive the request.
type pullConsumers struct {
	store engine.Queues
	node  string // name of this server in a cluster; "" if there is none
	// most is how many bytes of unsettled deliveries a pull consumer may have; all of them, of which bytes is the sum, may have twice as many.
	most  int
	bytes atomic.Int64

	mu     sync.Mutex
	open   map[pullKey]*pullConsumer
	closed bool
	ending sync.WaitGroup // closing pull consumers
}

// pullKey names a pull consumer: deliveries belong to the user that received them, and to all clients in open mode.
type pullKey struct{ queue, user string }

// pullConsumer is the shared consumer of one queue and user.
type pullConsumer struct {
	key    pullKey
	began  time.Time
	queue  string
	store  engine.Queues
	leases *leases
	all    *pullConsumers
	turn   chan struct{} // a semaphore of one slot: its holder may receive

	source engine.Consumption // guarded by turn; nil until the first receive

	// Guarded by pullConsumers.mu.
	users int
	idle  *time.Timer

	demand demand
}

func newPullConsumers(store engine.Queues, nodes Nodes, memory *budget.Budget) *pullConsumers {
	node := ""
	if nodes != nil {
		node = nodes.Name()
	}
	return &pullConsumers{store: store, node: node, most: mostUnsettled(memory), open: make(map[pullKey]*pullConsumer)}
}

// use returns the queue's pull consumer. Call release after use.
func (ds *pullConsumers) use(key pullKey) *pullConsumer {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	d := ds.open[key]
	if d == nil {
		d = &pullConsumer{key: key, began: time.Now(), queue: key.queue, store: ds.store, leases: newLeases(ds.node, nil), all: ds, turn: make(chan struct{}, 1)}
		d.leases.all = &ds.bytes
		d.demand.leases = d.leases
		ds.open[key] = d
	}
	if d.users++; d.idle != nil {
		d.idle.Stop()
		d.idle = nil
	}
	return d
}

// release ends a use. After the last use the pull consumer closes: at once if it never
// opened a source, otherwise after pullIdle without a use.
func (ds *pullConsumers) release(d *pullConsumer) {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	if d.users--; d.users > 0 || ds.open[d.key] != d {
		return
	}
	if d.source == nil {
		delete(ds.open, d.key)
		return
	}
	d.idle = time.AfterFunc(pullIdle, func() { ds.leave(d) })
}

// leave closes an idle pull consumer, unless it has unsettled deliveries.
func (ds *pullConsumers) leave(d *pullConsumer) {
	ds.mu.Lock()
	if d.users > 0 || ds.closed || ds.open[d.key] != d {
		ds.mu.Unlock()
		return
	}
	if out, _ := d.leases.count(time.Now()); out > 0 {
		d.idle = time.AfterFunc(pullIdle, func() { ds.leave(d) })
		ds.mu.Unlock()
		return
	}
	delete(ds.open, d.key)
	ds.ending.Add(1)
	ds.mu.Unlock()
	defer ds.ending.Done()
	d.demand.of(nil)
	d.source.Close()
	d.leases.forget()
}

// close releases all deliveries. It is called when no pull consumer is in use.
func (ds *pullConsumers) close() {
	ds.mu.Lock()
	ds.closed = true
	open := ds.open
	ds.open = make(map[pullKey]*pullConsumer)
	ds.mu.Unlock()
	for _, d := range open {
		if d.idle != nil {
			d.idle.Stop()
		}
		if d.source != nil {
			d.demand.of(nil)
			d.source.Close()
		}
	}
	ds.ending.Wait()
}

// receive waits for messages until wait ends, and returns those leased, perhaps
// none, with their tokens. ctx bounds everything else.
func (d *pullConsumer) receive(ctx context.Context, by asking, wait context.Context, limit int) ([]engine.Delivery, []string, error) {
	d.demand.add(limit)
	defer d.demand.add(-limit)
	select {
	case d.turn <- struct{}{}:
	case <-wait.Done():
		return nil, nil, nil
	}
	defer func() { <-d.turn }()
	out, _ := d.leases.count(time.Now())
	if limit = min(limit, pullLeases-out, d.room()); limit < 1 {
		return nil, nil, errTooManyLeases
	}
	for again := false; ; again = true {
		old := d.source != nil
		if err := d.openSource(ctx, by); err != nil {
			return nil, nil, err
		}
		got, err := d.source.Receive(wait, limit)
		switch {
		case err == nil:
			return got, d.leases.put(got), nil
		case wait.Err() != nil:
			return nil, nil, nil
		}
		d.closeSource() // it is broken: the next receive opens another
		if !errors.Is(err, engine.ErrNotFound) || !old || again {
			return nil, nil, err
		}
		d.leases.forget() // its queue was dropped, and there may be another one of that name
	}
}

// room returns how many more deliveries the bytes of those that are out permit.
func (d *pullConsumer) room() int {
	if d.all.bytes.Load() >= 2*int64(d.all.most) {
		return 0
	}
	return d.leases.fits(d.all.most)
}

// closeSource closes a source that is broken.
func (d *pullConsumer) closeSource() {
	d.demand.of(nil)
	d.source.Close()
	d.source = nil
}

// openSource opens the consumption of the queue, if it is not open.
func (d *pullConsumer) openSource(ctx context.Context, by asking) error {
	if d.source != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	source, err := query(ctx, by, func() (engine.Consumption, error) { return d.store.Consume(ctx, d.queue, engine.ConsumeOptions{}) })
	if err == nil {
		d.source = source
		d.demand.of(source)
	}
	return err
}
