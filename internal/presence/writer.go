package presence

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/migrate"
	"github.com/tidewire/tidewire/stream"
)

const (
	// maxBatch is how many events are written with one call.
	maxBatch = 1000
	// retryPause is the pause after a write that has failed. While PostgreSQL is away, no write fails: it waits.
	retryPause = time.Second
)

// Open returns a Recorder, and creates the stream if it does not exist. Run must follow soon. Errors are those of PostgreSQL.
func Open(ctx context.Context, cfg Config) (*Recorder, error) {
	cfg.MaxWaiting = cmp.Or(cfg.MaxWaiting, 1<<16)
	cfg.Beat = cmp.Or(cfg.Beat, 3*time.Second)
	cfg.GoneAfter = cmp.Or(cfg.GoneAfter, 15*time.Second)
	r := &Recorder{cfg: cfg, wake: make(chan struct{}, 1)}
	if err := r.openStream(ctx); err != nil {
		return nil, err
	}
	history, err := migrate.EnterHistory(ctx, cfg.Pool)
	if err != nil {
		return nil, err
	}
	r.history.Store(history)
	if err := r.register(ctx); err != nil { // before node_started: somebody will say that the node is gone
		return nil, err
	}
	for result, count := range map[string]*atomic.Uint64{"written": &r.written, "lost": &r.missed} {
		cfg.Metrics.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "tidewire_presence_events_total", Help: "Events for the stream of --presence-stream, by what has become of them.",
			ConstLabels: prometheus.Labels{"result": result}}, func() float64 { return float64(count.Load()) }))
	}
	r.record(event{kind: nodeStarted, at: now()})
	return r, nil
}

// openStream looks the stream up, or creates it.
func (r *Recorder) openStream(ctx context.Context) (err error) {
	target, err := stream.Ensure(ctx, r.cfg.Pool, r.cfg.Stream, stream.Options{Keyed: true})
	if errors.Is(err, stream.ErrExists) {
		target, err = stream.Lookup(ctx, r.cfg.Pool, r.cfg.Stream)
	}
	if err != nil {
		return fmt.Errorf("open the presence stream: %w", err)
	}
	r.target = target
	return nil
}

// Run writes until Stop, in goroutines of its own.
func (r *Recorder) Run(ctx context.Context) {
	writing, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	beating, stop := context.WithCancel(writing)
	r.giveUp, r.stop = giveUp, stop
	r.running.Go(func() { r.watch(beating) })
	r.running.Go(func() { r.write(writing) })
}

// Stop writes what has waited and node_stopped, at most until ctx ends. Call it when no connection is left.
func (r *Recorder) Stop(ctx context.Context) error {
	r.mu.Lock()
	r.stopping = true
	r.nudge()
	r.mu.Unlock()
	defer r.giveUp()
	defer context.AfterFunc(ctx, r.giveUp)()
	r.stop()
	r.running.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.waiting > 0 || r.lost > 0 {
		return fmt.Errorf("%d events for the presence stream could not be written", uint64(r.waiting)+r.lost)
	}
	return nil
}

// write is the goroutine that writes.
func (r *Recorder) write(ctx context.Context) {
	for {
		select {
		case <-r.wake:
		case <-ctx.Done():
			return
		}
		w := r.take()
		if len(w.events) == 0 {
			continue
		}
		written, err := 0, error(nil)
		if w.reopen {
			err = r.openStream(ctx)
		}
		if err == nil {
			written, err = r.writeAll(ctx, w.events)
		}
		switch {
		case err == nil && w.last:
			r.wrote(w)
			r.unregister()
			return
		case err == nil:
			r.failing = false
			r.wrote(w)
		default:
			if r.failed(w, written) || !r.recover(ctx, err) {
				return
			}
		}
	}
}

// recover opens the stream again after a write has failed, and reports whether it did before ctx ended.
func (r *Recorder) recover(ctx context.Context, err error) bool {
	for ; err != nil; err = r.openStream(ctx) {
		if !r.failing && ctx.Err() == nil {
			r.failing = true
			r.cfg.Log.Error("events of the presence stream are lost: trying again", "stream", r.cfg.Stream, "error", err)
		}
		select {
		case <-time.After(retryPause):
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// writeAll writes events, and returns how many of the first ones are written.
func (r *Recorder) writeAll(ctx context.Context, events []event) (written int, err error) {
	for len(events) > 0 {
		batch := events[:min(len(events), maxBatch)]
		if err := r.writeBatch(ctx, batch); err != nil {
			return written, err
		}
		r.written.Add(uint64(len(batch)))
		written += len(batch)
		events = events[len(batch):]
	}
	return written, nil
}

// writeBatch writes some events, in one call for each partition, and waits for the commit.
func (r *Recorder) writeBatch(ctx context.Context, events []event) error {
	partitions := make([][]engine.Message, max(1, r.target.Partitions()))
	for i := range events {
		for _, e := range r.encode(&events[i]) {
			p := r.target.PartitionOf(e.key)
			partitions[p] = append(partitions[p], engine.Message{Key: e.key, Payload: e.payload})
		}
	}
	ended := make(chan error, len(partitions))
	calls := 0
	for _, messages := range partitions {
		if len(messages) == 0 {
			continue
		}
		calls++
		if err := r.cfg.Publisher.Publish(ctx, r.cfg.Stream, nil, messages, func(_ engine.Place, err error) { ended <- err }); err != nil {
			ended <- err
		}
	}
	var errs error
	for range calls {
		select {
		case err := <-ended:
			errs = errors.Join(errs, err)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return errs
}

// encode encodes an event. One about a node is there once for each partition, so that each partition can be read by itself.
func (r *Recorder) encode(e *event) []encoded {
	if e.connection != 0 {
		return []encoded{e.encode(r.cfg.Node)}
	}
	return toAll(r.target, r.cfg.Node, e)
}

// toAll encodes an event about a node for each partition of the stream. The keys are those names that begin with the node's and belong there.
func toAll(target *stream.Stream, node string, e *event) []encoded {
	one := e.encode(node)
	one.key = node
	if target.Partitions() == 0 {
		return []encoded{one}
	}
	all := make([]encoded, target.Partitions())
	for n, missing := 0, len(all); missing > 0; n++ {
		key := node + "-p" + strconv.Itoa(n)
		if p := target.PartitionOf(key); all[p].key == "" {
			all[p] = encoded{key, one.payload}
			missing--
		}
	}
	return all
}
