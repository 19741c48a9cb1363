package queue

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/tidewire/tidewire/stream"
)

// TestPlan_PartitionInOrder: a partition's new holder finds released positions,
// and more messages after them: it claims only the former. A claim of the former
// could conflict with another node, of which the holder does not know yet; a claim
// of the latter could not, and would overtake.
func TestPlan_PartitionInOrder(t *testing.T) {
	t.Parallel()
	q := testQueueOf(t, Options{Partitions: 1})
	n := NewNode(q, NodeConfig{})
	p, s := n.parts[0], &state{}
	lease(t, q, s, 1, 5)
	mustWrite(t, q, s, request{own: 1, entries: []entry{{kind: kindEnd, token: 1}}}, written)
	n.Consume(ConsumerOptions{Credits: 10})
	p.openPartition()
	p.state, p.head, p.token, p.times.busy = *s, 8, 3, time.Now()
	p.state.leases[3] = time.Now().Add(time.Hour)
	p.deadline, p.renewAt = time.Now().Add(time.Hour), time.Now().Add(time.Hour)
	r, due := p.plan(&batch{}, time.Now(), false)
	if !due || r.claim != 0 || len(r.entries) != 1 || r.entries[0].kind != kindTake {
		t.Errorf("%+v, want only what was given up", r)
	}
}

// TestApplyStatus_KeepsWhatIsDue: the answer to a poll does not know of a message that was
// deferred after the poll began.
func TestApplyStatus_KeepsWhatIsDue(t *testing.T) {
	t.Parallel()
	q := newQueue(nil, "jobs", newShard(nil, &stream.Stream{}, 0))
	p := newShardNode(NewNode(q, NodeConfig{}), q.members[0])
	asked := p.times.noted
	due := time.Now().Add(time.Minute)
	p.times.dueBy(&sidePut{Due: &due}, time.Now())
	p.mu.Lock()
	defer p.mu.Unlock()
	p.applyStatus(queueStatus{now: time.Now()}, asked)
	if !p.times.due.Equal(due) {
		t.Errorf("due at %v, want %v", p.times.due, due)
	}
	p.applyStatus(queueStatus{now: time.Now()}, p.times.noted)
	if !p.times.due.IsZero() {
		t.Errorf("due at %v, and nothing is", p.times.due)
	}
}

// TestDropOne_AnotherOfItsName: a queue that Drop has found is gone before it is
// dropped. A new queue of the same name, ordinary or part of another one, is not
// dropped.
func TestDropOne_AnotherOfItsName(t *testing.T) {
	t.Parallel()
	q := testQueue(t)
	if _, err := Ensure(t.Context(), q.pool, "family", Options{Priorities: 2}); err != nil {
		t.Fatal(err)
	}
	other := int32(1_000_000)
	for _, c := range []struct {
		name string
		of   *int32
	}{{"family/1", nil}, {"family/1", &other}, {q.Name(), &other}} {
		if err := dropOne(t.Context(), q.pool, c.name, c.of); !errors.Is(err, ErrNotFound) {
			t.Errorf("%s was dropped: %v", c.name, err)
		}
	}
	for name, members := range map[string]int{"family": 2, q.Name(): 1} {
		if again, err := Lookup(t.Context(), q.pool, name); err != nil || len(again.members) != members {
			t.Errorf("%s, looked up: %v", name, err)
		}
	}
}

// TestPlan_PartitionOfAnother: a node requests a partition's lease, has to read the
// journal first, and finds that another node has the lease: it does not request it
// again.
func TestPlan_PartitionOfAnother(t *testing.T) {
	t.Parallel()
	q := testQueueOf(t, Options{Partitions: 1})
	n := NewNode(q, NodeConfig{})
	p, s := n.parts[0], &state{}
	mustWrite(t, q, s, request{}, written)
	n.Consume(ConsumerOptions{Credits: 10})
	p.openPartition()
	p.state, p.head, p.times.look = *s.clone(), 8, time.Now().Add(time.Hour)
	r, due := p.plan(&batch{}, time.Now(), false)
	if !due || p.token == 0 || r.entries[0].kind != kindLeaseExclusive {
		t.Fatalf("%+v, want a request for the lease", r)
	}
	p.state.leases[1] = time.Now().Add(time.Hour) // as after a compaction
	r, _ = p.plan(&batch{}, time.Now(), false)
	if p.token != 0 || len(r.entries) > 0 {
		t.Errorf("%+v, want nothing of a partition that another has", r)
	}
}

// leasing is the part of a Node that does not run, with a lease of token 2, and a Consumer.
func leasing() (*shardNode, *Consumer) {
	q := newQueue(nil, "jobs", newShard(nil, &stream.Stream{}, 0))
	n := NewNode(q, NodeConfig{})
	p, c, lasts := n.parts[0], n.Consume(ConsumerOptions{}), time.Now().Add(time.Hour)
	p.token, p.renewAt, p.times.busy, p.times.look = 2, lasts, time.Now(), lasts
	p.state.leases = map[int64]time.Time{2: lasts}
	return p, c
}

// TestPlan_LaterThanTheLease: AckLater of a delivery that belongs to a former lease does not count: another node may have the
// message.
func TestPlan_LaterThanTheLease(t *testing.T) {
	t.Parallel()
	p, c := leasing()
	for token := range int64(3) {
		d := Delivery{part: p, consumer: c, item: &item{token: token, Message: stream.Message{Position: 10 + token}}}
		if err := d.AckLater(); err != nil {
			t.Fatal(err)
		}
	}
	r, due := p.plan(&batch{}, p.times.later, false)
	if want := done(2, span{12, 12}); !due || len(r.entries) != 1 || !reflect.DeepEqual(r.entries[0], want) {
		t.Errorf("%+v, want only %+v", r.entries, want)
	}
}

// TestPlan_FinishesWhileRecording: a node begins to stop while the next attempt of a message is being recorded: the message is
// not delivered, so the attempt is taken back.
func TestPlan_FinishesWhileRecording(t *testing.T) {
	t.Parallel()
	p, _ := leasing()
	before := tally{attempts: 3, unbegun: 1}
	p.recordFirst(&item{token: 2, tally: before, Message: stream.Message{Position: 10}})
	b := &batch{}
	for _, want := range []entry{
		{kind: kindTried, token: 2, lo: 4, hi: 1, body: encodeSpans([]span{{10, 10}})},
		{kind: kindFree, token: 2, lo: 3, hi: 1, body: encodeSpans([]span{{10, 10}})},
	} {
		r, _ := p.plan(b, time.Now(), false)
		if len(r.entries) == 0 || !reflect.DeepEqual(r.entries[0], want) {
			t.Fatalf("%+v, want %+v first", r.entries, want)
		}
		p.finish()
		p.said(b)
		b.clear()
	}
}
