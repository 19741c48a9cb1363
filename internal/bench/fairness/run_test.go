package fairness_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidewire/tidewire/internal/pg"
)

// variant describes the disturbance during a run.
type variant struct {
	name        string
	flood, hold bool
	store       bool // it befalls the first event store, and not the first partition
}

var variants = []variant{
	{name: "plain"},
	{name: "flooded-partition", flood: true},
	{name: "flooded-store", flood: true, store: true},
	{name: "held-partition", hold: true},
	{name: "held-store", hold: true, store: true},
}

// floodCallers are how many callers of a flood wait for an answer each.
const floodCallers = 200

// run makes each target's writer append the given number of times, once each interval, and
// returns how many appends of a flood were answered.
func (f *field) run(ctx context.Context, v variant, appends int, every time.Duration) (flooded int64, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	special := f.special(v)
	var flood, writing, held sync.WaitGroup
	if v.hold {
		release, err := f.hold(ctx, special)
		if err != nil {
			return 0, err
		}
		defer release()
	}
	var answered atomic.Int64
	floodFailed := make(chan error, floodCallers)
	if v.flood {
		first := make(chan struct{})
		for range floodCallers {
			flood.Go(func() {
				for {
					if err := special.append(ctx); err != nil {
						if ctx.Err() == nil { // it ends the run, and not the run it
							floodFailed <- fmt.Errorf("flood of %s: %w", special.name, err)
						}
						cancel()
						return
					}
					if answered.Add(1) == 1 {
						close(first)
					}
				}
			})
		}
		select {
		case <-first:
		case <-ctx.Done():
		}
	}
	start := time.Now()
	order := rand.New(rand.NewPCG(1, 1)).Perm(len(f.targets)) // event stores and partitions by turns
	failed := make([]error, len(f.targets))
	for i, t := range f.targets {
		t.waits, t.late = nil, nil
		begin := start.Add(time.Duration(order[i]) * every / time.Duration(len(f.targets))) // so that the load is even
		group := &writing
		if v.hold && t == special {
			group = &held
		}
		group.Go(func() { failed[i] = t.write(ctx, begin, appends, every) })
	}
	writing.Wait()
	broken := ctx.Err() != nil
	cancel()
	flood.Wait()
	held.Wait()
	close(floodFailed)
	for failed := range floodFailed {
		err = errors.Join(err, failed)
	}
	for i, t := range f.targets {
		if failed[i] != nil && (broken || !v.hold || t != special) {
			err = errors.Join(err, fmt.Errorf("%s: %w", t.name, failed[i]))
		}
	}
	return answered.Load(), err
}

// special is the target that is flooded, or whose lock is held.
func (f *field) special(v variant) *target {
	if v.store {
		return f.targets[len(f.targets)-len(f.stores)]
	}
	return f.targets[0]
}

// flooded is the target that is flooded, or nil.
func (f *field) flooded(v variant) *target {
	if !v.flood {
		return nil
	}
	return f.special(v)
}

// write appends at times fixed in advance. A wait counts from when its append was due, even
// if the previous append was answered after that.
func (t *target) write(ctx context.Context, begin time.Time, appends int, every time.Duration) error {
	for n := range appends {
		due := begin.Add(time.Duration(n) * every)
		if ahead := time.Until(due); ahead > 0 {
			select {
			case <-time.After(ahead):
			case <-ctx.Done():
				return ctx.Err()
			}
			t.late = append(t.late, time.Since(due))
		}
		if err := t.append(ctx); err != nil {
			return err
		}
		t.waits = append(t.waits, time.Since(due))
	}
	return nil
}

// hold takes the lock of a target, on a connection outside the pool, until release.
func (f *field) hold(ctx context.Context, t *target) (release func(), err error) {
	conn, err := pgx.Connect(ctx, f.url)
	if err != nil {
		return nil, err
	}
	release = func() { conn.Close(context.WithoutCancel(ctx)) }
	tx, err := conn.Begin(ctx)
	if err == nil {
		_, err = tx.Exec(ctx, `SELECT pg_advisory_xact_lock($1, $2)`, pg.LockClass, t.lock)
	}
	if err != nil {
		release()
		return nil, fmt.Errorf("hold the lock of %s: %w", t.name, err)
	}
	return release, nil
}
