package gateway

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/tidewire/tidewire/internal/engine"
)

const (
	// pullLeases is how many deliveries of a queue may be out by HTTP.
	pullLeases = 10_000
	// pullIdle is how long a pull consumer stays open that nobody uses.
	pullIdle = 30 * time.Second
	// pullRest is how long a pull consumer may have more claimed for it than its clients ask
	// for: who receives again and again need not wait for a claim each time.
	pullRest = 250 * time.Millisecond
	// openTimeout is how long that may take; a receive waits for it in any case.
	openTimeout = 5 * time.Second
)

var errDeskFull = errors.New("gateway: too many deliveries are out")

// pull consumers lease messages to clients that come by HTTP, one pull consumer for each queue
// that is in use. The deliveries are the pull consumer's: they outlive the request.
type pullConsumers struct {
	store engine.Queues

	mu     sync.Mutex
	open   map[string]*pullConsumer
	closed bool
	ending sync.WaitGroup // pull consumers that are being closed
}

// pull consumer is one queue's.
type pullConsumer struct {
	queue  string
	store  engine.Queues
	leases *leases
	turn   chan struct{} // one slot: who may receive

	source engine.Consumption // of who has the turn; nil until the first receive

	// Guarded by pull consumers.mu.
	users int
	idle  *time.Timer

	demand demand
}

func newPullConsumers(store engine.Queues) *pullConsumers {
	return &pullConsumers{store: store, open: make(map[string]*pullConsumer)}
}

// use returns the queue's pull consumer, to be released.
func (ds *pullConsumers) use(queue string) *pullConsumer {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	d := ds.open[queue]
	if d == nil {
		d = &pullConsumer{queue: queue, store: ds.store, leases: newLeases(), turn: make(chan struct{}, 1)}
		d.demand.leases = d.leases
		ds.open[queue] = d
	}
	if d.users++; d.idle != nil {
		d.idle.Stop()
		d.idle = nil
	}
	return d
}

// release ends a use. After the last one the pull consumer closes: at once if it never
// got anything to lease, later if nobody comes back.
func (ds *pullConsumers) release(d *pullConsumer) {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	if d.users--; d.users > 0 || ds.open[d.queue] != d {
		return
	}
	if d.source == nil {
		delete(ds.open, d.queue)
		return
	}
	d.idle = time.AfterFunc(pullIdle, func() { ds.leave(d) })
}

// leave closes a pull consumer that is idle, unless there are deliveries out.
func (ds *pullConsumers) leave(d *pullConsumer) {
	ds.mu.Lock()
	if d.users > 0 || ds.closed || ds.open[d.queue] != d {
		ds.mu.Unlock()
		return
	}
	if out, _ := d.leases.count(time.Now()); out > 0 {
		d.idle = time.AfterFunc(pullIdle, func() { ds.leave(d) })
		ds.mu.Unlock()
		return
	}
	delete(ds.open, d.queue)
	ds.ending.Add(1)
	ds.mu.Unlock()
	defer ds.ending.Done()
	d.demand.of(nil)
	d.source.Close()
}

// close gives back all deliveries. Nobody uses a pull consumer any more.
func (ds *pullConsumers) close() {
	ds.mu.Lock()
	ds.closed = true
	open := ds.open
	ds.open = make(map[string]*pullConsumer)
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

// receive leases messages until wait ends, none if none come, and returns them
// with their tokens. ctx is for the rest.
func (d *pullConsumer) receive(ctx, wait context.Context, limit int) ([]engine.Delivery, []string, error) {
	d.demand.add(limit)
	defer d.demand.add(-limit)
	select {
	case d.turn <- struct{}{}:
	case <-wait.Done():
		return nil, nil, nil
	}
	defer func() { <-d.turn }()
	out, _ := d.leases.count(time.Now())
	if limit = min(limit, pullLeases-out); limit < 1 {
		return nil, nil, errDeskFull
	}
	if err := d.openSource(ctx); err != nil {
		return nil, nil, err
	}
	got, err := d.source.Receive(wait, limit)
	switch {
	case err == nil:
		return got, d.leases.put(got), nil
	case wait.Err() != nil:
		return nil, nil, nil
	default: // for good: the next receive begins anew
		d.demand.of(nil)
		d.source.Close()
		d.source = nil
		return nil, nil, err
	}
}

// openSource has the pull consumer take part in its queue.
func (d *pullConsumer) openSource(ctx context.Context) error {
	if d.source != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	source, err := d.store.Consume(ctx, d.queue)
	if err == nil {
		d.source = source
		d.demand.of(source)
	}
	return err
}
