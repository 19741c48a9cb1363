package queue_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/internal/testkit"
	"github.com/tidewire/tidewire/queue"
)

// restless is a queue with all kinds of random events, and counts of these and
// of its nodes' writes.
type restless struct {
	t      *testing.T
	url    string
	pool   *pgxpool.Pool
	q      *queue.Queue
	random *rand.Rand // of the goroutine that causes events
	nodes  []*queue.Node
	writes []*atomic.Int64
	done   atomic.Int64 // things done

	ctx       context.Context // of the consumers; ends when they stop
	silence   context.CancelFunc
	running   sync.WaitGroup
	consumers []*queue.Consumer
}

// restLook and restLease are the intervals of the nodes' own timers.
const (
	restLook  = 200 * time.Millisecond
	restLease = 600 * time.Millisecond
)

// byThemselves is how often the nodes may write in that time without a cause,
// with a margin for a busy machine.
func (r *restless) byThemselves(d time.Duration) int64 {
	looks, renewals := d/(restLook*3/4)+1, d/(restLease/3)+1
	return int64(len(r.nodes)*len(r.q.Streams())) * 2 * int64(looks+renewals)
}

func (r *restless) written() (sum int64) {
	for _, n := range r.writes {
		sum += n.Load()
	}
	return sum
}

func (r *restless) addNode() {
	_, q := elsewhere(r.t, r.url, r.q.Name())
	r.writes = append(r.writes, queue.CountWrites(q))
	n, _ := start(r.t, q, queue.NodeConfig{
		Lease: restLease, PollJournal: restLook, IdleAfter: 300 * time.Millisecond, StallAfter: 200 * time.Millisecond,
		Ahead: 1 + r.random.IntN(40), RotateRows: 200, LaterEvery: 20 * time.Millisecond,
	})
	r.nodes = append(r.nodes, n)
}

// stir does one thing to the queue.
func (r *restless) stir() {
	n := r.nodes[r.random.IntN(len(r.nodes))]
	var err error
	switch chance := r.random.IntN(100); {
	case chance < 45:
		err = r.enqueue(n)
	case chance < 65:
		opts := queue.ConsumerOptions{Credits: 1 + r.random.IntN(30), Visibility: time.Duration(20+r.random.IntN(500)) * time.Millisecond}
		r.consume(n.Consume(opts), rand.New(rand.NewPCG(r.random.Uint64(), 1)))
	case chance < 80 && len(r.consumers) > 0:
		i := r.random.IntN(len(r.consumers))
		r.consumers[i].Close()
		r.consumers = append(r.consumers[:i], r.consumers[i+1:]...)
	case chance < 84:
		err = r.q.Pause(r.t.Context())
	case chance < 92:
		err = r.q.Resume(r.t.Context())
	case chance < 94:
		_, err = r.q.Purge(r.t.Context(), queue.PurgeOptions{})
	case chance < 98:
		_, err = r.q.Redrive(r.t.Context())
	default:
		r.gap()
	}
	if err != nil {
		r.t.Error(err)
	}
	r.done.Add(1)
}

// gap leaves positions that no message will have, as a batch that failed does, or a
// transaction with an old snapshot. Now and then a stream gets tables of its own.
func (r *restless) gap() {
	if r.random.IntN(4) > 0 {
		jump(r.t, r.pool, r.q)
		return
	}
	id := r.q.Streams()[r.random.IntN(len(r.q.Streams()))].ID()
	if _, err := r.pool.Exec(r.t.Context(), `SELECT tidewire.own_stream($1)`, id); err != nil {
		r.t.Error(err)
	}
	sql := fmt.Sprintf(`SELECT pg_advisory_xact_lock(1953064037, %[1]d), setval('tidewire.stream_%[1]d_position_seq', nextval('tidewire.stream_%[1]d_position_seq') + %[2]d)`,
		id, r.random.IntN(50))
	if _, err := r.pool.Exec(r.t.Context(), sql); err != nil {
		r.t.Error(err)
	}
}

func (r *restless) enqueue(n *queue.Node) error {
	msgs := make([]queue.Message, 1+r.random.IntN(40))
	delay := time.Duration(0)
	if r.random.IntN(3) == 0 {
		delay = time.Duration(1 + r.random.IntN(300_000_000))
	}
	priority, key := r.random.IntN(max(1, r.q.Options().Priorities)), ""
	if r.random.IntN(3) > 0 {
		key = fmt.Sprint(r.random.IntN(20))
	}
	for i := range msgs {
		msgs[i] = queue.Message{Key: key, Payload: []byte("x"), Priority: priority}
		if delay > 0 {
			msgs[i].Due = time.Now().Add(delay)
		}
	}
	_, err := n.Enqueue(r.t.Context(), msgs...)
	return err
}

// consume handles deliveries in random ways, until ctx ends.
func (r *restless) consume(c *queue.Consumer, random *rand.Rand) {
	r.consumers = append(r.consumers, c)
	r.running.Go(func() {
		for {
			ds, err := c.Receive(r.ctx)
			if err != nil {
				return
			}
			for _, d := range ds {
				r.done.Add(1)
				switch random.IntN(8) {
				case 0: // its time runs out
				case 1:
					d.AckLater()
				case 2:
					d.Nack(r.t.Context(), queue.NackOptions{Delay: time.Duration(1 + random.IntN(50_000_000))})
				case 3:
					d.Nack(r.t.Context(), queue.NackOptions{Dead: true})
				default:
					d.Ack(r.t.Context())
				}
			}
		}
	})
}

// TestNode_ComesToRest: after random events stop, nodes write only what their
// timers cause. Before that, their writes are bounded by the number of events.
func TestNode_ComesToRest(t *testing.T) {
	t.Parallel()
	for seed := range pgtest.Seeds() {
		for name, opts := range kinds {
			t.Run(fmt.Sprint(name, " ", seed), func(t *testing.T) {
				t.Parallel()
				opts.MaxAttempts, opts.RetryMin = 5, 5*time.Millisecond
				db, q := setup(t, opts)
				r := &restless{t: t, url: db.URL, pool: db.Pool, q: q, random: rand.New(rand.NewPCG(seed, 77))}
				r.comesToRest(1 + r.random.IntN(3))
			})
		}
	}
}

func (r *restless) comesToRest(nodes int) {
	t := r.t
	r.ctx, r.silence = context.WithCancel(context.Background())
	defer r.running.Wait()
	defer r.silence()
	for range nodes {
		r.addNode()
	}
	began := time.Now()
	for range 200 {
		r.stir()
	}
	if err := r.q.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	took := time.Since(began)
	written, most := r.written(), 3*r.done.Load()+r.byThemselves(took)
	if t.Logf("%d things done, %d writes in %v", r.done.Load(), written, took); written > most {
		t.Errorf("%d writes, want at most %d", written, most)
	}
	if r.random.IntN(2) == 0 { // consumers do not ask any more; else they go on with what is there
		r.silence()
		r.running.Wait()
	}
	before, at := r.written(), time.Now()
	testkit.Eventually(t, fmt.Sprintf("at most %d writes a second", r.byThemselves(time.Second)), func() bool {
		if time.Since(at) < time.Second {
			return false
		}
		more := r.written() - before
		before, at = before+more, time.Now()
		return more <= r.byThemselves(time.Second)
	})
}
