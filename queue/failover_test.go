package queue_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/pg"
	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/migrate"
	"github.com/tidewire/tidewire/queue"
	"github.com/tidewire/tidewire/stream"
)

// failing is a queue whose server fails over, with one Consumer.
type failing struct {
	*testing.T
	name string
	opts queue.Options
	q    *queue.Queue
	n    *queue.Node
	c    *queue.Consumer
	held []*queue.Delivery // leased when the primary died
}

// serve starts the Node, on a pool of the server that accepts writes.
func (f *failing) serve(p pgtest.Pair, hub bool) {
	f.Helper()
	if _, err := queue.Ensure(f.Context(), p.Pool, f.name, f.opts); err != nil {
		f.Fatal(err)
	}
	pool, q := elsewhere(f.T, p.Both(f.T), f.name)
	f.q = q
	cfg := queue.NodeConfig{}
	if hub {
		cfg.Hub = runHub(f.T, pool, stream.HubConfig{Poll: 100 * time.Millisecond})
		cfg.Appender.Hub = cfg.Hub
	}
	f.n, _ = start(f.T, q, cfg)
	f.c = f.n.Consume(queue.ConsumerOptions{Credits: 500, Visibility: time.Minute})
}

// next returns the next delivery, or nil if none comes in time.
func (f *failing) next(within time.Duration) *queue.Delivery {
	ctx, cancel := context.WithTimeout(f.Context(), within)
	defer cancel()
	ds, err := f.c.ReceiveUpTo(ctx, 1)
	if err != nil {
		return nil
	}
	return ds[0]
}

func (f *failing) must() *queue.Delivery {
	f.Helper()
	d := f.next(time.Minute)
	if d == nil {
		f.Fatalf("%s: nothing is delivered", f.name)
	}
	return d
}

// put enqueues a number of messages, of seven keys and all priorities, of which the last is unique.
func (f *failing) put(what string, messages int) {
	f.Helper()
	for i := range messages {
		m := queue.Message{Payload: fmt.Append(nil, what, " ", i), Key: fmt.Sprint(i % 7), Priority: i % max(1, f.opts.Priorities)}
		if i == messages-1 {
			m.Unique = queue.Unique{Key: strings.TrimPrefix(what, "new "), Period: 10 * time.Minute}
		}
		ctx, cancel := context.WithTimeout(f.Context(), time.Minute)
		if _, err := f.n.Enqueue(ctx, m); err != nil {
			f.Fatalf("%s, %s: %v", f.name, m.Payload, err)
		}
		cancel()
	}
}

// keep has messages enqueued and acknowledged that the standby gets.
func (f *failing) keep() {
	f.put("kept", 14)
	for range 14 {
		mustAck(f.T, f.must())
	}
}

// lose has messages enqueued that the standby does not get, and some of them settled in each way.
func (f *failing) lose() {
	f.put("lost", 35)
	for i := range 7 { // one of each key
		d := f.must()
		switch i % 4 {
		case 0:
			mustAck(f.T, d)
		case 1:
			mustNack(f.T, d, queue.NackOptions{Delay: 200 * time.Millisecond})
		case 2:
			mustNack(f.T, d, queue.NackOptions{Dead: true})
		default:
			f.held = append(f.held, d)
		}
	}
}

// goOn has messages enqueued after the failover, of which one is unique as a lost one was. Each is delivered once. Lost messages
// that were in memory may still be delivered, and their deliveries are void.
func (f *failing) goOn() {
	f.put("new lost", 35)
	for _, d := range f.held {
		if d.Ack(f.Context()) == nil {
			f.Errorf("%s: a delivery of what is lost was acknowledged", f.name)
		}
	}
	got := make(map[string]bool)
	patience := time.Minute
	for d := f.next(patience); d != nil; d = f.next(patience) {
		text, err := string(d.Payload), d.Ack(f.Context())
		switch isNew := strings.HasPrefix(text, "new"); {
		case !isNew && !strings.HasPrefix(text, "lost"), isNew && got[text]:
			f.Errorf("%s: %q is delivered again", f.name, text)
		case isNew && err != nil, err != nil && !errors.Is(err, queue.ErrLeaseLost):
			f.Errorf("%s: %q: %v", f.name, text, err)
		case isNew:
			got[text] = true
		}
		if len(got) == 35 {
			patience = 500 * time.Millisecond // longer than the pause of nacked messages
		}
	}
	if s, err := f.q.Stats(f.Context()); err != nil || len(got) != 35 || s.Ready+s.Leased+s.Delayed+s.Dead != 0 {
		f.Errorf("%s: %d messages came; %+v, %v: want nothing left", f.name, len(got), s, err)
	}
}

// TestFailover: a standby is promoted that lacks the last messages, and what was done with them. Queues of all kinds deliver the
// messages that are enqueued then, each once, whatever the Node had claimed: earlier deliveries at the same positions do not
// count for them.
func TestFailover(t *testing.T) {
	slow(t)
	t.Parallel()
	p := pgtest.StartPair(t, openMigrated)
	p.Unsynchronised(t)
	all := []*failing{{T: t, name: "hub"}}
	for name, opts := range kinds {
		all = append(all, &failing{T: t, name: name, opts: opts})
	}
	each := func(step func(*failing)) {
		for _, f := range all {
			step(f)
		}
	}
	each(func(f *failing) { f.serve(p, f.name == "hub") })
	each((*failing).keep)
	p.CatchUp(t)
	p.Detach(t)
	each((*failing).lose)
	p.Promote(t)
	each((*failing).goOn)
}

// openMigrated opens a pool that reports canceled waits for standbys, on a database that it migrates.
func openMigrated(ctx context.Context, url string) (*pgxpool.Pool, error) {
	pool, err := pg.Open(ctx, pg.PoolConfig{URL: url})
	if err == nil {
		_, err = migrate.Up(ctx, pool)
	}
	return pool, err
}
