package queue

import (
	"testing"
	"time"
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
	mustWrite(t, q, s, request{}, written)
	mustWrite(t, q, s, request{own: 1, lease: time.Hour, entries: []entry{{kind: kindLeaseExclusive, token: 1}}}, written)
	mustWrite(t, q, s, request{own: 1, claim: 5}, written)
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

// TestWrite_LeaseExclusive: of two requests for an exclusive lease the second one gets nothing.
func TestWrite_LeaseExclusive(t *testing.T) {
	t.Parallel()
	q := testQueue(t)
	a, b := &state{}, &state{}
	mustWrite(t, q, a, request{}, written)
	mustWrite(t, q, b, request{}, written)
	alone := func(token int64) request {
		return request{own: token, lease: time.Hour, entries: []entry{{kind: kindLeaseExclusive, token: token}}}
	}
	mustWrite(t, q, a, alone(1), written)
	mustWrite(t, q, b, alone(2), conflicting)
	if len(b.leases) != 1 || b.leases[1].IsZero() {
		t.Errorf("leases %v, want that of the first", b.leases)
	}
}

// TestPlan_PartitionOfAnother: a node requests a partition's lease, has to read the
// journal first, and finds that another node has the lease: it does not request it
// again.
func TestPlan_PartitionOfAnother(t *testing.T) {
	t.Parallel()
	q, err := Ensure(t.Context(), testQueue(t).pool, "ordered", Options{Partitions: 1})
	if err != nil {
		t.Fatal(err)
	}
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

// TestPlan_LargeGap: two Nodes reach a gap as long as after a failover, at the same time. Both get past it, and
// neither claims that many positions after it.
func TestPlan_LargeGap(t *testing.T) {
	t.Parallel()
	const end = int64(1) << 45
	q := testQueue(t)
	var nodes []*shardNode
	for token := int64(1); token <= 2; token++ {
		n := NewNode(q, NodeConfig{})
		n.Consume(ConsumerOptions{Credits: 10})
		s := &state{}
		mustWrite(t, q, s, request{}, written)
		mustWrite(t, q, s, request{seen: s.seen, own: token, lease: time.Hour, entries: []entry{{kind: kindLease, token: token}}}, written)
		p := n.parts[0]
		p.state, p.token, p.times.busy = *s, token, time.Now()
		p.deadline, p.renewAt = time.Now().Add(time.Hour), time.Now().Add(time.Hour)
		p.head, p.empty = end+30, span{1, end}
		nodes = append(nodes, p)
	}
	mustWrite(t, q, &nodes[0].state, request{seen: nodes[0].state.seen}, written)
	var planned []request
	for _, p := range nodes {
		r, due := p.plan(&batch{}, time.Now(), false)
		if !due {
			t.Fatal("nothing is planned")
		}
		planned = append(planned, r)
	}
	mustWrite(t, q, &nodes[0].state, planned[0], written)
	mustWrite(t, q, &nodes[1].state, planned[1], conflicting)
	for _, p := range nodes {
		mustWrite(t, q, &p.state, request{seen: p.state.seen}, written)
		r, _ := p.plan(&batch{}, time.Now(), false)
		if p.state.top != end || r.claim < 1 || r.claim > 1000 {
			t.Errorf("top is %d, want %d; claims %d more", p.state.top, end, r.claim)
		}
	}
}
