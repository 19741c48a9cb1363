package stream_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/stream"
)

// network connects the Hubs of a test. What is sent passes through a function that may lose, repeat, reorder and keep
// it.
type network struct {
	pass func(deliver func()) // nil passes everything at once

	mu    sync.Mutex
	nodes []*networkNode
}

type networkNode struct {
	network   *network
	listeners map[int32]map[*func([]byte)]bool
}

func (n *network) node() *networkNode {
	n.mu.Lock()
	defer n.mu.Unlock()
	node := &networkNode{network: n, listeners: make(map[int32]map[*func([]byte)]bool)}
	n.nodes = append(n.nodes, node)
	return node
}

func (p *networkNode) Send(id int32, page []byte) {
	p.network.mu.Lock()
	defer p.network.mu.Unlock()
	for _, other := range p.network.nodes {
		if other == p {
			continue
		}
		for receive := range other.listeners[id] {
			mine := bytes.Clone(page)
			deliver := func() {
				received := bytes.Clone(mine)
				(*receive)(received)
				clear(received) // a Hub must not keep it
			}
			if p.network.pass == nil {
				go deliver()
			} else {
				p.network.pass(deliver)
			}
		}
	}
}

func (p *networkNode) Listen(id int32, receive func([]byte)) (stop func()) {
	p.network.mu.Lock()
	defer p.network.mu.Unlock()
	if p.listeners[id] == nil {
		p.listeners[id] = make(map[*func([]byte)]bool)
	}
	p.listeners[id][&receive] = true
	return func() {
		p.network.mu.Lock()
		defer p.network.mu.Unlock()
		delete(p.listeners[id], &receive)
	}
}

// TestPeers_NothingIsRead: two processes append in turn, and a subscription of each gets all messages from memory.
func TestPeers_NothingIsRead(t *testing.T) {
	t.Parallel()
	db, s := ensure(t)
	var net network
	type process struct {
		appender *stream.Appender
		sub      *stream.Subscription
		reads    *counting
	}
	var all []process
	for range 2 {
		pool, reads := countingPool(t, db.URL, "AS candidate")
		h, _ := runHub(t, pool, stream.HubConfig{Poll: never, NoListen: true, Peers: net.node()})
		all = append(all, process{run(t, pool, s, stream.AppenderConfig{Hub: h}), subscribe(t, h, s, stream.After(0)), reads})
	}
	appendTo := func(p process, n int64) {
		first := mustAppend(t, p.appender, stream.Message{Key: "k", Payload: fmt.Append(nil, n)})
		for _, p := range all {
			page := next(t, p.sub)
			if len(page) != 1 || page[0].Position != first || page[0].Key != "k" || string(page[0].Payload) != fmt.Sprint(n) {
				t.Fatalf("message %d at %d: %+v", n, first, page)
			}
		}
	}
	appendTo(all[0], 0)
	appendTo(all[1], 1)
	before := all[0].reads.count.Load() + all[1].reads.count.Load()
	for n := range int64(100) {
		appendTo(all[n%2], 2+n)
	}
	if n := all[0].reads.count.Load() + all[1].reads.count.Load() - before; n > 10 {
		t.Errorf("%d reads for 100 commits, want none, or those of a read that met a commit", n)
	}
}

// TestPeers_LostRepeatedReordered: three processes append to two streams, some transactions fail, and what the
// processes tell each other is lost, repeated and reordered. Each subscription gets exactly what is stored.
func TestPeers_LostRepeatedReordered(t *testing.T) {
	t.Parallel()
	notShort(t)
	forSeeds(t, func(t *testing.T, seed uint64) {
		peersHistory(t, seed)
	})
}

func peersHistory(t *testing.T, seed uint64) {
	db := setup(t)
	const processes, calls = 3, 60
	all := []*stream.Stream{ensureOn(t, db.Pool, "a"), ensureOn(t, db.Pool, "b")}
	net := network{pass: unreliable(t, seed)}
	var subs []*stream.Subscription
	var appending sync.WaitGroup
	for process, pool := range append(pools(t, db.URL, processes-1), db.Pool) {
		h, _ := runHub(t, pool, stream.HubConfig{Poll: 50 * time.Millisecond, NoListen: true, Peers: net.node()})
		for i, s := range all {
			subs = append(subs, subscribe(t, h, s, stream.After(0)))
			appending.Go(func() { appendAll(t, pool, s, h, calls, seed+uint64(10*process+i)) })
			appending.Go(func() { transactions(t, pool, s, h, calls/2, seed+uint64(100*process+i)) })
		}
	}
	got := make([][]stream.Message, len(subs))
	ends := make([]atomic.Int64, len(all))
	var following sync.WaitGroup
	for i, sub := range subs {
		following.Go(func() {
			// A transaction that has failed may have taken positions, so the end may be higher.
			for end := &ends[i%len(all)]; end.Load() == 0 || sub.Position() < end.Load(); {
				got[i] = append(got[i], next(t, sub)...)
			}
		})
	}
	appending.Wait()
	for i, s := range all { // the last messages, before which all know where the end is
		head, err := s.Head(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ends[i].Store(head + 1)
		mustAppend(t, run(t, db.Pool, s, stream.AppenderConfig{}), messages("last")...)
	}
	following.Wait()
	for i := range subs {
		sameMessages(t, fmt.Sprint("subscription ", i), got[i], everything(t, all[i%len(all)]))
	}
}

// transactions appends in transactions, of which half fail.
func transactions(t *testing.T, pool *pgxpool.Pool, s *stream.Stream, h *stream.Hub, n int, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 5))
	for i := range n {
		failed := random.IntN(2) == 0
		err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			if err := s.AppendTx(t.Context(), tx, messages(fmt.Sprint("transaction ", seed, " ", i, " fails: ", failed))...); err != nil || !failed {
				return err
			}
			return errFails
		})
		if !failed && err != nil {
			t.Error(err)
		}
		h.Notify(s)
	}
}

// unreliable returns a network's pass: of ten pages one is lost, one comes twice, and three come after some of the following ones.
func unreliable(t *testing.T, seed uint64) func(deliver func()) {
	random := rand.New(rand.NewPCG(seed, 4))
	var delivering sync.WaitGroup
	t.Cleanup(delivering.Wait)
	var late []func()
	return func(deliver func()) { // under the network's lock
		times := 1
		switch random.IntN(10) {
		case 0:
			times = 0
		case 1:
			times = 2
		}
		for range times {
			if random.IntN(10) < 3 {
				late = append(late, deliver)
			} else {
				delivering.Go(deliver)
			}
		}
		for len(late) > 0 && random.IntN(4) == 0 {
			i := random.IntN(len(late))
			delivering.Go(late[i])
			late = append(late[:i], late[i+1:]...)
		}
	}
}

var errFails = errors.New("this transaction fails")

// sameMessages compares messages, headers by their meaning.
func sameMessages(t *testing.T, what string, got, want []stream.Message) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%s: %d messages, want %d", what, len(got), len(want))
		return
	}
	for i := range got {
		g, w := got[i], want[i]
		var gh, wh any
		json.Unmarshal(g.Headers, &gh)
		json.Unmarshal(w.Headers, &wh)
		if g.Position != w.Position || g.Key != w.Key || string(g.Payload) != string(w.Payload) || !g.Time.Equal(w.Time) ||
			!reflect.DeepEqual(gh, wh) || (g.Payload == nil) != (w.Payload == nil) {
			t.Fatalf("%s: message %d is %+v, and in PostgreSQL %+v", what, i, g, w)
		}
	}
}

// appendAll appends calls of several sizes, with and without keys and headers.
func appendAll(t *testing.T, pool *pgxpool.Pool, s *stream.Stream, h *stream.Hub, calls int, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 3))
	a := run(t, pool, s, stream.AppenderConfig{Hub: h})
	var waiting sync.WaitGroup
	for n := range calls {
		msgs := make([]stream.Message, 1+random.IntN(3))
		if random.IntN(20) == 0 {
			msgs = make([]stream.Message, 300)
		}
		for i := range msgs {
			msgs[i].Payload = fmt.Append(nil, seed, " ", n, " ", i)
			if random.IntN(2) == 0 {
				msgs[i].Key = fmt.Sprint("key-", n)
			}
			if random.IntN(20) == 0 {
				msgs[i].Headers = json.RawMessage(`{"b":  1, "a": [2]}`)
			}
			if random.IntN(20) == 0 {
				msgs[i].Payload = nil
			}
		}
		waiting.Add(1)
		if err := a.Submit(t.Context(), msgs, func(_ stream.Appended, err error) {
			if err != nil {
				t.Error(err)
			}
			waiting.Done()
		}); err != nil {
			t.Error(err)
			waiting.Done()
		}
		if random.IntN(2) == 0 {
			waiting.Wait()
		}
	}
	waiting.Wait()
}
