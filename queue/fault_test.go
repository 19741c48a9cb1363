package queue_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/internal/testkit"
	"github.com/tidewire/tidewire/queue"
)

// checker notes what happens to each message, by its text: its key, and a number.
type checker struct {
	mu       sync.Mutex
	enqueued map[string]bool        // answered
	handed   map[string][]time.Time // when it was delivered
	asked    map[string]time.Time   // when an ack that may be recorded was first asked for
	acked    map[string]time.Time   // when the ack was answered
	later    map[string]bool        // an ack had no answer, or was given to AckLater

	awaited int // more deliveries to come, before reached is closed
	reached chan struct{}
}

func newChecker() *checker {
	return &checker{
		enqueued: make(map[string]bool), handed: make(map[string][]time.Time),
		asked: make(map[string]time.Time), acked: make(map[string]time.Time), later: make(map[string]bool),
	}
}

// more returns a channel that is closed after that many more deliveries.
func (c *checker) more(deliveries int) <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.awaited, c.reached = deliveries, make(chan struct{})
	return c.reached
}

// deliver notes deliveries. None may have been delivered after an answered ack of its message.
func (c *checker) deliver(t *testing.T, ds []*queue.Delivery) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, d := range ds {
		text, at := string(d.Payload), queue.DeliveredAt(d)
		c.handed[text] = append(c.handed[text], at)
		if acked, ok := c.acked[text]; ok && at.After(acked) {
			t.Errorf("%q was delivered %v after the answer to its ack", text, at.Sub(acked))
		}
	}
	if c.awaited -= len(ds); c.awaited <= 0 && c.reached != nil {
		close(c.reached)
		c.reached = nil
	}
}

// ack acknowledges, now or later, and notes the answer. Only one delivery of a message may be acknowledged.
func (c *checker) ack(t *testing.T, d *queue.Delivery, later bool) {
	asked, text := time.Now(), string(d.Payload)
	var err error
	if later {
		err = d.AckLater()
	} else {
		err = d.Ack(t.Context())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if errors.Is(err, queue.ErrLeaseLost) {
		return
	}
	if first, ok := c.asked[text]; !ok || asked.Before(first) {
		c.asked[text] = asked
	}
	switch {
	case errors.Is(err, queue.ErrOutcomeUnknown), err == nil && later:
		c.later[text] = true // or not
	case err != nil:
		t.Errorf("ack of %q: %v", text, err)
	case !c.acked[text].IsZero():
		t.Errorf("%q was acknowledged twice", text)
	default:
		c.acked[text] = time.Now()
	}
}

// finish wants everything that was enqueued to be acknowledged. If order is kept, each message has to be delivered after the
// acknowledgement of the one before with its key.
func (c *checker) finish(t *testing.T, ordered bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for text := range c.enqueued {
		if len(c.handed[text]) == 0 || c.acked[text].IsZero() && !c.later[text] {
			t.Errorf("%q was delivered at %v, and not acknowledged", text, c.handed[text])
		}
	}
	for text, times := range c.handed {
		key, number, _ := strings.Cut(text, " ")
		i, err := strconv.Atoi(number)
		if err != nil {
			t.Fatal(err)
		}
		before := fmt.Sprint(key, " ", i-1)
		for _, at := range times {
			if acked, ok := c.asked[before]; ordered && i > 0 && (!ok || acked.After(at)) {
				t.Errorf("%q was delivered at %v, and %q, delivered at %v, acknowledged at %v, %t", text, at, before, c.handed[before], acked, ok)
			}
		}
	}
	t.Logf("%d messages, %d acks without an answer", len(c.enqueued), len(c.later))
}

// process is a node that simulates a separate process, with its own pool.
type process struct {
	pool    *pgxpool.Pool
	node    *queue.Node
	cancel  context.CancelFunc
	running sync.WaitGroup
	writes  *atomic.Int64
}

// joinNode starts a process without Consumers.
func joinNode(t *testing.T, url, name string, cfg queue.NodeConfig) *process {
	t.Helper()
	m := &process{pool: newPool(t, url)}
	var q *queue.Queue
	testkit.Eventually(t, "the queue is found", func() (found bool) {
		var err error
		q, err = queue.Lookup(t.Context(), m.pool, name)
		return err == nil
	})
	m.writes, m.node = queue.CountWrites(q), queue.NewNode(q, quick(cfg))
	ctx, cancel := context.WithCancel(context.Background())
	m.cancel = cancel
	m.running.Go(func() {
		if err := m.node.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return m
}

// join starts a process with Consumers that do everything that Consumers may do.
func join(t *testing.T, url string, seed uint64, c *checker, cfg queue.NodeConfig) *process {
	t.Helper()
	m := joinNode(t, url, "jobs", cfg)
	ctx, cancel := context.WithCancel(context.Background())
	stop := m.cancel
	m.cancel = func() { cancel(); stop() }
	for i := range 3 {
		m.running.Go(func() { consume(t, ctx, m.node, rand.New(rand.NewPCG(seed, uint64(i))), c) })
	}
	return m
}

// consume receives, and handles each delivery in a random way.
func consume(t *testing.T, ctx context.Context, n *queue.Node, random *rand.Rand, c *checker) {
	opts := queue.ConsumerOptions{Credits: 1 + random.IntN(20), Visibility: 300 * time.Millisecond}
	consumer := n.Consume(opts)
	defer func() { consumer.Close() }()
	var acks sync.WaitGroup
	defer acks.Wait()
	var extended []*queue.Delivery
	for {
		ds, err := consumer.Receive(ctx)
		if err != nil {
			return
		}
		for _, d := range extended {
			acks.Go(func() { c.ack(t, d, false) })
		}
		extended = nil
		c.deliver(t, ds)
		for _, d := range ds {
			switch chance := random.IntN(100); {
			case chance < 70:
				acks.Go(func() { c.ack(t, d, false) })
			case chance < 80:
				c.ack(t, d, true)
			case chance < 90:
				opts := queue.NackOptions{Delay: time.Duration(1 + random.IntN(50_000_000)), Reason: "chance"}
				acks.Go(func() { d.Nack(t.Context(), opts) })
			case chance < 95: // handled for longer: until more is delivered
				d.Extend(time.Duration(100+random.IntN(200)) * time.Millisecond)
				extended = append(extended, d)
			case chance < 98: // its time runs out
			default:
				consumer.Close()
				consumer = n.Consume(opts)
			}
		}
	}
}

// leave stops the node, and kill ends it as a process dies: without ending its leases.
func (m *process) leave() {
	m.cancel()
	m.running.Wait()
	m.pool.Close()
}

func (m *process) kill() {
	m.node.Abandon()
	m.leave()
}

// feed enqueues messages, those of each key in their order, from a process of its own. The channel is closed at the end.
func feed(t *testing.T, url string, keys, messages int, c *checker) <-chan struct{} {
	t.Helper()
	_, q := elsewhere(t, url, "jobs")
	e, fed := enqueuer(t, q), make(chan struct{})
	var calling sync.WaitGroup
	for key := range keys {
		calling.Go(func() {
			for i := range messages {
				text := fmt.Sprint("k", key, " ", i)
				m := queue.Message{Key: fmt.Sprint("k", key), Payload: []byte(text), Priority: i % max(1, q.Options().Priorities)}
				if _, err := e.Enqueue(t.Context(), m); err != nil {
					t.Errorf("enqueue: %v", err)
					return
				}
				c.mu.Lock()
				c.enqueued[text] = true
				c.mu.Unlock()
			}
		})
	}
	go func() { calling.Wait(); close(fed) }()
	return fed
}

var faulty = queue.NodeConfig{
	Lease: time.Second, RotateRows: 20, IdleAfter: 200 * time.Millisecond, Ahead: 16, StallAfter: 100 * time.Millisecond,
}

// eachSeed runs a test for each seed, with random numbers.
func eachSeed(t *testing.T, name string, test func(*testing.T, *rand.Rand)) {
	for seed := range pgtest.Seeds() {
		t.Run(fmt.Sprint(name, " ", seed), func(t *testing.T) {
			t.Parallel()
			test(t, rand.New(rand.NewPCG(seed, 7)))
		})
	}
}

// TestNode_KilledAndLeaving: nodes join, die and leave under load, while the queue is paused and resumed, and gets positions
// without messages. Nothing is lost, nothing that was acknowledged is delivered again, in a queue with partitions the order of
// each key is kept, and at the end the nodes write only what their timers cause.
func TestNode_KilledAndLeaving(t *testing.T) {
	slow(t)
	t.Parallel()
	for name, c := range map[string]struct {
		opts           queue.Options
		share          queue.Assigner
		keys, messages int // of each key
	}{
		"plain": {queue.Options{}, nil, 4, 200}, "priorities": {queue.Options{Priorities: 3}, nil, 4, 60},
		"all partitions": {queue.Options{Partitions: 4}, all, 10, 20}, "partitions by stream": {queue.Options{Partitions: 4}, nil, 10, 30},
	} {
		eachSeed(t, name, func(t *testing.T, random *rand.Rand) {
			if name == "partitions by stream" {
				testkit.Long(t)
			}
			c.opts.MaxAttempts = 1000
			db, q := setup(t, c.opts)
			check, cfg := newChecker(), faulty
			cfg.Assign = c.share
			if name == "plain" {
				holdSnapshot(t, db)
			}
			members := make([]*process, 3)
			for i := range members {
				members[i] = join(t, db.URL, random.Uint64(), check, cfg)
			}
			fed := feed(t, db.URL, c.keys, c.messages, check)
			for event := range 6 {
				select {
				case <-check.more(5 + random.IntN(c.keys*c.messages/8)):
				case <-fed:
				}
				i := random.IntN(len(members))
				if event%3 < 2 {
					members[i].kill()
				} else {
					members[i].leave()
				}
				if err := q.Pause(t.Context()); err != nil {
					t.Fatal(err)
				}
				jump(t, db.Pool, q, fmt.Sprint("gap", event, " 0"))
				members[i] = join(t, db.URL, random.Uint64(), check, cfg)
				if err := q.Resume(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			<-fed
			wantDone(t, q)
			wantRest(t, members, len(q.Streams()))
			for _, m := range members {
				m.leave()
			}
			check.finish(t, c.opts.Partitions > 0)
			if c.opts.Partitions+c.opts.Priorities == 0 && count(t, db.Pool, `SELECT count(*) FROM tidewire.queue WHERE xmin <> (SELECT xmin FROM tidewire.stream)`) == 0 {
				t.Error("the journal never began anew")
			}
		})
	}
}

// wantRest waits until processes whose queue has so many streams write no more than their timers cause, with a margin for a busy
// machine.
func wantRest(t *testing.T, members []*process, streams int) {
	t.Helper()
	written := func() (sum int64) {
		for _, m := range members {
			sum += m.writes.Load()
		}
		return sum
	}
	looks, renewals := time.Second/(100*time.Millisecond*3/4)+1, time.Second/(faulty.Lease/3)+1
	most := int64(len(members)*streams) * 2 * int64(looks+renewals)
	before, at := written(), time.Now()
	testkit.Eventually(t, fmt.Sprintf("at most %d writes a second", most), func() bool {
		if time.Since(at) < time.Second {
			return false
		}
		more := written() - before
		before, at = before+more, time.Now()
		return more <= most
	})
}

// holdSnapshot keeps a transaction open that has read everything. It blocks nothing, however often the journal is compacted.
func holdSnapshot(t *testing.T, db pgtest.DB) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), db.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	for _, sql := range []string{
		`BEGIN ISOLATION LEVEL REPEATABLE READ`, `SELECT FROM tidewire.queue`, `SELECT FROM tidewire.queue_side`,
		`SELECT FROM tidewire.queue_journal`, `SELECT FROM tidewire.shared_message`,
	} {
		mustExec(t, conn, sql)
	}
}

// TestNode_PostgreSQLKilled kills PostgreSQL under load.
func TestNode_PostgreSQLKilled(t *testing.T) {
	slow(t)
	t.Parallel()
	eachSeed(t, "", func(t *testing.T, random *rand.Rand) {
		server := pgtest.Start(t)
		pool, err := openMigrated(t.Context(), server.URL())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(pool.Close)
		q, err := queue.Ensure(t.Context(), pool, "jobs", queue.Options{MaxAttempts: 1000})
		if err != nil {
			t.Fatal(err)
		}
		c := newChecker()
		var members []*process
		for range 2 {
			members = append(members, join(t, server.URL(), random.Uint64(), c, faulty))
		}
		fed := feed(t, server.URL(), 4, 200, c)
		for range 2 {
			select {
			case <-c.more(50 + random.IntN(200)):
			case <-fed:
			}
			pgtest.Crash(t, server)
		}
		<-fed
		wantDone(t, q)
		for _, m := range members {
			m.leave()
		}
		c.finish(t, false)
	})
}
