package queue_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/migrate"
	"github.com/tidewire/tidewire/queue"
)

// checker notes what happens to each message, by its text.
type checker struct {
	mu        sync.Mutex
	enqueued  map[string]bool      // answered
	delivered map[string]int       // how often
	acked     map[string]time.Time // when the ack was answered
	later     map[string]bool      // given to AckLater at least once
	lost      int                  // acks that got ErrLeaseLost

	handed map[string][]time.Time // when it was delivered
	asked  map[string]time.Time   // when an ack that may be recorded was asked for
}

func newChecker() *checker {
	return &checker{
		enqueued: make(map[string]bool), delivered: make(map[string]int),
		acked: make(map[string]time.Time), later: make(map[string]bool),
		handed: make(map[string][]time.Time), asked: make(map[string]time.Time),
	}
}

// deliver notes deliveries. None may have been delivered after an answered
// ack of its message.
func (c *checker) deliver(t *testing.T, ds []*queue.Delivery) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, d := range ds {
		text := string(d.Payload)
		c.delivered[text]++
		c.handed[text] = append(c.handed[text], queue.DeliveredAt(d))
		if at, acked := c.acked[text]; acked && queue.DeliveredAt(d).After(at) {
			t.Errorf("%q was delivered %v after the answer to its ack", text, queue.DeliveredAt(d).Sub(at))
		}
	}
}

// ack acknowledges, and notes the answer. Only one delivery of a message may be
// acknowledged.
func (c *checker) ack(t *testing.T, d *queue.Delivery) {
	asked := time.Now()
	err := d.Ack(t.Context())
	text := string(d.Payload)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil || errors.Is(err, queue.ErrOutcomeUnknown) {
		c.mayBeAcked(text, asked)
	}
	switch {
	case err == nil:
		if _, before := c.acked[text]; before {
			t.Errorf("%q was acknowledged twice", text)
		}
		c.acked[text] = time.Now()
	case errors.Is(err, queue.ErrLeaseLost):
		c.lost++
	case errors.Is(err, queue.ErrOutcomeUnknown):
		c.later[text] = true // or not
	default:
		t.Errorf("ack of %q: %v", text, err)
	}
}

func (c *checker) ackLater(t *testing.T, d *queue.Delivery) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.later[string(d.Payload)] = true
	c.mayBeAcked(string(d.Payload), time.Now())
	if err := d.AckLater(); err != nil && !errors.Is(err, queue.ErrLeaseLost) {
		t.Errorf("AckLater of %q: %v", d.Payload, err)
	}
}

// mayBeAcked notes the first time from which the message may be acknowledged.
func (c *checker) mayBeAcked(text string, at time.Time) {
	if first, ok := c.asked[text]; !ok || at.Before(first) {
		c.asked[text] = at
	}
}

// inOrder wants each message to have been delivered after the acknowledgement
// of the one before with its key. Texts are keys with numbers from 0 on.
func (c *checker) inOrder(t *testing.T) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for text, times := range c.handed {
		key, number, _ := strings.Cut(text, " ")
		i, err := strconv.Atoi(number)
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			continue
		}
		before := fmt.Sprint(key, " ", i-1)
		for _, at := range times {
			if acked, ok := c.asked[before]; !ok || acked.After(at) {
				t.Errorf("%q was delivered at %s, and %q, delivered at %s, acknowledged at %s, %t", text, clock(at), before, clock(c.handed[before]...), clock(acked), ok)
			}
		}
	}
}

// finish wants everything that was enqueued to be acknowledged.
func (c *checker) finish(t *testing.T) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for text := range c.enqueued {
		_, acked := c.acked[text]
		if c.delivered[text] == 0 || !acked && !c.later[text] {
			t.Errorf("%q was delivered %d times, and not acknowledged", text, c.delivered[text])
		}
	}
	again := 0
	for _, times := range c.delivered {
		again += times - 1
	}
	t.Logf("%d messages, %d deliveries too many, %d acks lost", len(c.enqueued), again, c.lost)
}

// shard is a node that simulates a separate process, with its own pool.
type shard struct {
	pool    *pgxpool.Pool
	node    *queue.Node
	cancel  context.CancelFunc
	running sync.WaitGroup
}

// join starts a node with consumers that do everything that consumers may do.
func join(t *testing.T, url string, seed uint64, c *checker, cfg queue.NodeConfig) *shard {
	t.Helper()
	m := joinNode(t, url, cfg)
	ctx, cancel := context.WithCancel(context.Background())
	stop := m.cancel
	m.cancel = func() { cancel(); stop() }
	for i := range 3 {
		m.running.Go(func() { consume(t, ctx, m.node, rand.New(rand.NewPCG(seed, uint64(i))), c) })
	}
	return m
}

// joinNode starts a node that simulates a separate process, with its own pool.
func joinNode(t *testing.T, url string, cfg queue.NodeConfig) *shard {
	t.Helper()
	pool := newPool(t, url)
	var q *queue.Queue
	eventually(t, "the queue is found", func() bool {
		var err error
		q, err = queue.Lookup(t.Context(), pool, "jobs")
		return err == nil
	})
	m := &shard{pool: pool, node: queue.NewNode(q, quick(cfg))}
	ctx, cancel := context.WithCancel(context.Background())
	m.cancel = cancel
	m.running.Go(func() {
		if err := m.node.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return m
}

// consume receives, and handles each delivery in a random way.
func consume(t *testing.T, ctx context.Context, n *queue.Node, random *rand.Rand, c *checker) {
	opts := queue.ConsumerOptions{Credits: 1 + random.IntN(20), Visibility: 300 * time.Millisecond}
	consumer := n.Consume(opts)
	defer func() { consumer.Close() }()
	var acks sync.WaitGroup
	defer acks.Wait()
	for {
		ds, err := consumer.Receive(ctx)
		if err != nil {
			return
		}
		c.deliver(t, ds)
		for _, d := range ds {
			switch chance := random.IntN(100); {
			case chance < 70:
				acks.Go(func() { c.ack(t, d) })
			case chance < 80:
				c.ackLater(t, d)
			case chance < 90:
				opts := queue.NackOptions{Delay: time.Duration(1 + random.IntN(50_000_000)), Reason: "chance"}
				acks.Go(func() { d.Nack(t.Context(), opts) })
			case chance < 95:
				d.Extend(time.Duration(100+random.IntN(200)) * time.Millisecond)
				acks.Go(func() {
					time.Sleep(200 * time.Millisecond)
					c.ack(t, d)
				})
			case chance < 98: // its time runs out
			default:
				consumer.Close()
				consumer = n.Consume(opts)
			}
		}
	}
}

// kill ends the node as a process dies: without ending its leases.
func (m *shard) kill() {
	m.node.Abandon()
	m.cancel()
	m.running.Wait()
	m.pool.Close()
}

// leave stops the node.
func (m *shard) leave() {
	m.cancel()
	m.running.Wait()
	m.pool.Close()
}

// feed enqueues that many messages, from a pool of its own.
func feed(t *testing.T, url string, messages int, pause time.Duration, c *checker) {
	t.Helper()
	feedAs(t, url, "", messages, pause, c)
}

// feedAs is feed with texts that begin with name.
func feedAs(t *testing.T, url, name string, messages int, pause time.Duration, c *checker) {
	t.Helper()
	_, q := elsewhere(t, url, "jobs")
	p := queue.NewEnqueuer(q, queue.EnqueuerConfig{})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	p.Start()
	running.Go(func() { <-ctx.Done(); p.Stop() })
	defer running.Wait()
	defer cancel()
	var calling sync.WaitGroup
	for caller := range 4 {
		calling.Go(func() {
			for i := range messages / 4 {
				text := fmt.Sprint(name, caller, " ", i)
				if _, err := p.Enqueue(t.Context(), queue.Message{Payload: []byte(text)}); err != nil {
					t.Errorf("enqueue: %v", err)
					return
				}
				c.mu.Lock()
				c.enqueued[text] = true
				c.mu.Unlock()
				time.Sleep(pause)
			}
		})
	}
	calling.Wait()
}

// wantDone waits until nothing is left in the queue.
func wantDone(t *testing.T, q *queue.Queue) {
	t.Helper()
	var s queue.Stats
	defer func() {
		if t.Failed() {
			t.Logf("the queue has %+v", s)
		}
	}()
	eventually(t, "all is acknowledged", func() bool {
		var err error
		s, err = q.Stats(t.Context())
		return err == nil && s.Ready+s.Leased+s.Delayed == 0
	})
	if s.Dead > 0 {
		t.Errorf("%d dead letters, want none", s.Dead)
	}
}

var faulty = queue.NodeConfig{
	Lease: time.Second, RotateRows: 20, IdleAfter: 200 * time.Millisecond, Ahead: 16, StallAfter: 100 * time.Millisecond,
}

// TestNode_KilledAndLeaving has nodes die and leave while others consume.
func TestNode_KilledAndLeaving(t *testing.T) {
	t.Parallel()
	for seed := range pgtest.Seeds() {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			db, q := setup(t, queue.Options{MaxAttempts: 1000})
			c := newChecker()
			random := rand.New(rand.NewPCG(seed, 7))
			members := make([]*shard, 3)
			for i := range members {
				members[i] = join(t, db.URL, random.Uint64(), c, faulty)
			}
			var feeding sync.WaitGroup
			feeding.Go(func() { feed(t, db.URL, 2000, time.Millisecond, c) })
			for range 12 {
				time.Sleep(time.Duration(50+random.IntN(200)) * time.Millisecond)
				i := random.IntN(len(members))
				if random.IntN(3) > 0 {
					members[i].kill()
				} else {
					members[i].leave()
				}
				members[i] = join(t, db.URL, random.Uint64(), c, faulty)
			}
			feeding.Wait()
			wantDone(t, q)
			for _, m := range members {
				m.leave()
			}
			c.finish(t)
			if rotated := count(t, db.Pool, `SELECT count(*) FROM tidewire.queue WHERE xmin <> (SELECT xmin FROM tidewire.stream)`); rotated == 0 {
				t.Error("the journal never began anew")
			}
		})
	}
}

// TestNode_PostgreSQLKilled kills PostgreSQL again and again under load.
func TestNode_PostgreSQLKilled(t *testing.T) {
	t.Parallel()
	for seed := range pgtest.Seeds() {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			server := pgtest.Start(t)
			pool, err := pgxpool.New(t.Context(), server.URL())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(pool.Close)
			if _, err := migrate.Up(t.Context(), pool); err != nil {
				t.Fatal(err)
			}
			q, err := queue.Ensure(t.Context(), pool, "jobs", queue.Options{MaxAttempts: 1000})
			if err != nil {
				t.Fatal(err)
			}
			c := newChecker()
			random := rand.New(rand.NewPCG(seed, 8))
			var members []*shard
			for range 2 {
				members = append(members, join(t, server.URL(), random.Uint64(), c, faulty))
			}
			var feeding sync.WaitGroup
			feeding.Go(func() { feed(t, server.URL(), 1000, 2*time.Millisecond, c) })
			for range 3 {
				time.Sleep(time.Duration(100+random.IntN(300)) * time.Millisecond)
				pgtest.Crash(t, server)
			}
			feeding.Wait()
			wantDone(t, q)
			for _, m := range members {
				m.leave()
			}
			c.finish(t)
		})
	}
}

// clock is times as text, to the microsecond.
func clock(times ...time.Time) (all []string) {
	for _, t := range times {
		all = append(all, t.Format("05.000000"))
	}
	return all
}
