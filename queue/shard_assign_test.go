package queue_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/queue"
)

// keyed is a message with a key.
func keyed(key, text string) queue.Message {
	return queue.Message{Key: key, Payload: []byte(text)}
}

// table is an Assigner in memory: it divides numbers among its seats, evenly and slowly.
type table struct {
	mu      sync.Mutex
	seats   []*seat
	owner   map[int]*seat
	changed chan struct{}
}

type seat struct{ asked map[int]chan struct{} }

func newTable() *table { return &table{owner: make(map[int]*seat), changed: make(chan struct{})} }

// alter changes the table, and notifies all seats.
func (s *table) alter(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	close(s.changed)
	s.changed = make(chan struct{})
}

// share is a queue.Assigner.
func (s *table) share(ctx context.Context, _ string, numbers int, own func(context.Context, int, <-chan struct{})) error {
	me := &seat{asked: make(map[int]chan struct{})}
	s.alter(func() { s.seats = append(s.seats, me) })
	var owning sync.WaitGroup
	for ctx.Err() == nil {
		s.mu.Lock()
		quota := (numbers + len(s.seats) - 1) / len(s.seats)
		for i := range numbers {
			if s.owner[i] == nil && len(me.asked) < quota {
				asked := make(chan struct{})
				s.owner[i], me.asked[i] = me, asked
				owning.Go(func() {
					own(ctx, i, asked)
					s.alter(func() { delete(s.owner, i); delete(me.asked, i) })
				})
			}
		}
		over := len(me.asked) - quota
		for i, asked := range me.asked {
			if over > 0 && asked != nil {
				close(asked)
				me.asked[i] = nil
				over--
			} else if asked == nil {
				over--
			}
		}
		changed := s.changed
		s.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
	owning.Wait()
	s.alter(func() { s.seats = slices.DeleteFunc(s.seats, func(x *seat) bool { return x == me }) })
	return nil
}

// all is a queue.Assigner that gives all numbers to every member.
func all(ctx context.Context, _ string, numbers int, own func(context.Context, int, <-chan struct{})) error {
	var owning sync.WaitGroup
	for i := range numbers {
		owning.Go(func() { own(ctx, i, ctx.Done()) })
	}
	owning.Wait()
	return nil
}

// TestPartitions_KeepOrder goes through all outcomes of one message: only the others
// of its key have to wait.
func TestPartitions_KeepOrder(t *testing.T) {
	t.Parallel()
	_, q := setup(t, queue.Options{Partitions: 2, MaxAttempts: 3})
	n, _ := start(t, q, queue.NodeConfig{Lease: time.Hour})
	for i := range 4 {
		mustEnqueue(t, n, keyed("a", fmt.Sprint("a", i)))
		mustEnqueue(t, n, keyed("b", fmt.Sprint("b", i)))
	}
	mustEnqueue(t, n, keyed("", "free"), keyed("", "free"))
	c := n.Consume(queue.ConsumerOptions{Visibility: time.Hour})
	next := func(want string) *queue.Delivery {
		t.Helper()
		d := receive(t, c, 1)[0]
		if string(d.Payload) != want {
			t.Fatalf("got %q, want %q", d.Payload, want)
		}
		return d
	}
	ds := receive(t, c, 4)
	slices.SortFunc(ds, func(a, b *queue.Delivery) int { return slices.Compare(a.Payload, b.Payload) })
	if got := texts(ds); !slices.Equal(got, []string{"a0", "b0", "free", "free"}) {
		t.Fatalf("got %q", got)
	}
	wantNothing(t, c, 50*time.Millisecond)
	mustAck(t, ds[1])
	b1 := next("b1")
	mustNack(t, ds[0], queue.NackOptions{Delay: 300 * time.Millisecond})
	mustNack(t, ds[2], queue.NackOptions{Delay: time.Hour})
	wantNothing(t, c, 50*time.Millisecond)
	a0 := next("a0")
	if a0.Attempt != 2 {
		t.Errorf("attempt %d, want 2", a0.Attempt)
	}
	mustNack(t, a0, queue.NackOptions{Dead: true})
	a1 := next("a1")
	if err := a1.AckLater(); err != nil {
		t.Error(err)
	}
	a2 := next("a2")
	if redriven, err := q.Redrive(t.Context()); err != nil || redriven != 1 {
		t.Fatal(redriven, err)
	}
	eventually(t, "what was dead has been taken", func() bool {
		s, err := q.Stats(t.Context())
		return err == nil && s.Dead == 0 && s.Delayed == 1
	})
	mustAck(t, a2)
	a3 := receive(t, c, 1)[0]
	if string(a3.Payload) != "a3" { // otherwise the redriven a0 was taken, but not read yet: it comes after a3
		if string(a3.Payload) != "a0" {
			t.Fatalf("got %q, want a0 or a3", a3.Payload)
		}
		mustAck(t, a3)
		a3 = next("a3")
	}
	c.Close()
	c = n.Consume(queue.ConsumerOptions{Visibility: 50 * time.Millisecond})
	again := receive(t, c, 3)
	if err := a3.Ack(t.Context()); !errors.Is(err, queue.ErrLeaseLost) {
		t.Errorf("ack after Close: %v", err)
	}
	if err := b1.Ack(t.Context()); !errors.Is(err, queue.ErrLeaseLost) {
		t.Errorf("ack after Close: %v", err)
	}
	if len(again) != 3 {
		t.Errorf("again came %q", texts(again))
	}
	if partition := q.PartitionOf("a"); partition != q.PartitionOf("a") || partition > 1 {
		t.Errorf("partition %d", partition)
	}
}

// TestPartitions_DelayedKeepsItsPlace: a message that is not due delays only its own key.
func TestPartitions_DelayedKeepsItsPlace(t *testing.T) {
	t.Parallel()
	_, q := setup(t, queue.Options{Partitions: 1})
	n, _ := start(t, q, queue.NodeConfig{})
	first := keyed("a", "a0")
	first.Due = time.Now().Add(time.Second)
	mustEnqueue(t, n, first, keyed("a", "a1"), keyed("b", "b0"))
	c := n.Consume(queue.ConsumerOptions{Credits: 1})
	var got []string
	for range 3 {
		ds := receive(t, c, 1)
		got = append(got, texts(ds)...)
		mustAck(t, ds...)
	}
	if !slices.Equal(got, []string{"b0", "a0", "a1"}) || time.Now().Before(first.Due) {
		t.Errorf("got %q", got)
	}
}

// TestPartitions_OneHolder: two nodes are both given all partitions: the messages of one
// node do not go to the other until it leaves.
func TestPartitions_OneHolder(t *testing.T) {
	t.Parallel()
	db, q := setup(t, queue.Options{Partitions: 3})
	n, stop := start(t, q, queue.NodeConfig{Lease: time.Hour, Assign: all})
	c := n.Consume(queue.ConsumerOptions{})
	for i := range 30 {
		mustEnqueue(t, n, keyed(fmt.Sprint("k", i%10), fmt.Sprint(i)))
	}
	ds := receive(t, c, 10)
	_, far := elsewhere(t, db.URL, "jobs")
	n2, _ := start(t, far, queue.NodeConfig{Lease: time.Hour, Assign: all})
	c2 := n2.Consume(queue.ConsumerOptions{})
	wantNothing(t, c2, 500*time.Millisecond)
	if leases := queue.Leases(t, q); leases != 3 {
		t.Errorf("%d leases, want one a partition", leases)
	}
	mustAck(t, ds[0])
	stop()
	seen := make(map[string]bool)
	for len(seen) < 29 {
		for _, d := range receive(t, c2, 1) {
			if string(d.Payload) == string(ds[0].Payload) {
				t.Errorf("%q came again", d.Payload)
			}
			seen[string(d.Payload)] = true
			mustAck(t, d)
		}
	}
	wantDone(t, q)
}

// TestPartitions_SharedOut: partitions move to a node that joins, and back when it
// leaves, after their deliveries are settled.
func TestPartitions_SharedOut(t *testing.T) {
	t.Parallel()
	db, q := setup(t, queue.Options{Partitions: 4})
	cfg := queue.NodeConfig{Lease: time.Hour, Assign: newTable().share, Drain: time.Hour}
	n, _ := start(t, q, queue.NodeConfig{Lease: time.Hour, Assign: cfg.Assign, Drain: time.Hour})
	c := n.Consume(queue.ConsumerOptions{Visibility: time.Hour})
	for i := range 40 {
		mustEnqueue(t, n, keyed(fmt.Sprint("k", i), fmt.Sprint(i)))
	}
	held := receive(t, c, 40)
	_, far := elsewhere(t, db.URL, "jobs")
	n2, stop := start(t, far, cfg)
	c2 := n2.Consume(queue.ConsumerOptions{})
	for i := range 40 {
		mustEnqueue(t, n, keyed(fmt.Sprint("k", i), fmt.Sprint("again ", i)))
	}
	wantNothing(t, c2, 200*time.Millisecond)
	mustAck(t, held...)
	mine, others := receive(t, c, 1), receive(t, c2, 1)
	mustAck(t, mine...)
	mustAck(t, others...)
	c2.Close()
	stop()
	for got := len(mine) + len(others); got < 40; {
		ds := receive(t, c, 1)
		mustAck(t, ds...)
		got += len(ds)
	}
	wantDone(t, q)
}

// TestPartitions_CreditsInAll counts credits once for all partitions, and ends with the
// queue.
func TestPartitions_CreditsInAll(t *testing.T) {
	t.Parallel()
	db, q := setup(t, queue.Options{Partitions: 4})
	n := queue.NewNode(q, quick(queue.NodeConfig{Lease: time.Minute}))
	var running sync.WaitGroup
	running.Go(func() {
		if err := n.Run(t.Context()); !errors.Is(err, queue.ErrNotFound) {
			t.Errorf("Run of a dropped queue: %v, want ErrNotFound", err)
		}
	})
	c := n.Consume(queue.ConsumerOptions{Credits: 3})
	for i := range 40 {
		mustEnqueue(t, n, keyed(fmt.Sprint("k", i), fmt.Sprint(i)))
	}
	ds := receive(t, c, 3)
	wantNothing(t, c, 200*time.Millisecond)
	mustAck(t, ds[:2]...)
	if more := receive(t, c, 2); len(more) != 2 {
		t.Errorf("%d more with two credits", len(more))
	}
	if err := queue.Drop(t.Context(), db.Pool, "jobs"); err != nil {
		t.Fatal(err)
	}
	running.Wait()
}

// feedKeys enqueues messages with keys, those of each in their order.
func feedKeys(t *testing.T, url string, callers, messages int, c *checker) {
	t.Helper()
	_, q := elsewhere(t, url, "jobs")
	p := queue.NewEnqueuer(q, queue.EnqueuerConfig{})
	ctx, cancel := context.WithCancel(context.Background())
	var running, calling sync.WaitGroup
	p.Start()
	running.Go(func() { <-ctx.Done(); p.Stop() })
	defer running.Wait()
	defer cancel()
	for caller := range callers {
		calling.Go(func() {
			for i := range messages {
				key := fmt.Sprint("k", caller)
				text := fmt.Sprint(key, " ", i)
				if _, err := p.Enqueue(t.Context(), keyed(key, text)); err != nil {
					t.Errorf("enqueue: %v", err)
					return
				}
				c.mu.Lock()
				c.enqueued[text] = true
				c.mu.Unlock()
				time.Sleep(5 * time.Millisecond)
			}
		})
	}
	calling.Wait()
}

// TestPartitions_KilledAndLeaving: nodes join, die and leave under load. The order of
// each key is kept, nothing is lost, and nothing that was acknowledged is delivered
// again.
func TestPartitions_KilledAndLeaving(t *testing.T) {
	t.Parallel()
	for seed := range pgtest.Seeds() {
		for name, share := range map[string]queue.Assigner{"all": all, "by stream": nil} {
			t.Run(fmt.Sprint(name, " ", seed), func(t *testing.T) {
				t.Parallel()
				db, q := setup(t, queue.Options{MaxAttempts: 1000, Partitions: 4})
				c := newChecker()
				random := rand.New(rand.NewPCG(seed, 9))
				cfg := faulty
				cfg.Assign = share
				members := make([]*shard, 2)
				for i := range members {
					members[i] = join(t, db.URL, random.Uint64(), c, cfg)
				}
				var feeding sync.WaitGroup
				feeding.Go(func() { feedKeys(t, db.URL, 10, 40, c) })
				for range 4 {
					time.Sleep(time.Duration(50+random.IntN(300)) * time.Millisecond)
					i := random.IntN(len(members))
					if random.IntN(2) > 0 {
						members[i].kill()
					} else {
						members[i].leave()
					}
					members[i] = join(t, db.URL, random.Uint64(), c, cfg)
				}
				feeding.Wait()
				wantDone(t, q)
				for _, m := range members {
					m.leave()
				}
				c.finish(t)
				c.inOrder(t)
			})
		}
	}
}
