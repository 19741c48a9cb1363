package stream_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/embedpg"
	"github.com/tidewire/tidewire/internal/pg"
	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/internal/testkit"
	"github.com/tidewire/tidewire/stream"
)

// crowd writes to some streams in all ways, reads them, and notes what it was answered.
type crowd struct {
	t       *testing.T
	nodes   []*pgxpool.Pool
	writers []*pgxpool.Pool // of the Appenders
	names   []string
	answers *progress
	over    atomic.Bool
	mu      sync.Mutex         // guards the following
	acked   []map[string]int64 // positions of each stream's messages, or 0 where the answer has none
	maybe   []map[string]bool  // messages without an answer
}

func newCrowd(t *testing.T, nodes []*pgxpool.Pool, names ...string) *crowd {
	t.Helper()
	c := &crowd{t: t, nodes: nodes, writers: slices.Clone(nodes), names: names, answers: newProgress()}
	for i, name := range names {
		ensureNamed(t, nodes[0], name, i == len(names)-1)
		c.acked, c.maybe = append(c.acked, map[string]int64{}), append(c.maybe, map[string]bool{})
	}
	return c
}

// ack notes an answer. Repetitions of a request have the same one.
func (c *crowd) ack(i int, payloads []string, first int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for n, p := range payloads {
		at := first
		if first > 0 {
			at += int64(n)
		}
		if before, twice := c.acked[i][p]; twice && before != at {
			c.t.Errorf("stream %d: %s was answered %d and %d", i, p, before, at)
		}
		c.acked[i][p] = at
	}
	c.answers.add()
}

// mayHave notes messages that may be stored.
func (c *crowd) mayHave(i int, payloads []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range payloads {
		c.maybe[i][p] = true
	}
}

func parts(name string, n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprint(name, "/", i))
	}
	return all
}

// append appends to a stream until the load is over, and sends each request from two nodes.
func (c *crowd) append(node, i int, random *rand.Rand) {
	s := ensureNamed(c.t, c.nodes[node], c.names[i], false)
	a := run(c.t, c.writers[node], s, stream.AppenderConfig{Writer: stream.WriterConfig{Method: stream.Method(random.IntN(2) * i % 3)}})
	for k := int64(0); !c.over.Load(); k++ {
		payloads := parts(fmt.Sprint("append ", node, " ", k), 1+random.IntN(3))
		at, err := a.Append(context.Background(), messages(payloads...)...)
		if err == nil {
			c.ack(i, payloads, at.First)
			payloads = parts(fmt.Sprint("request ", k), 2)
			id := stream.RequestID{Client: "p", Sequence: k}
			impatient, cancel := context.WithTimeout(context.Background(), time.Duration(random.IntN(20))*time.Millisecond)
			a.AppendAs(impatient, id, messages(payloads...)...)
			cancel()
			if at, err = a.AppendAs(context.Background(), id, messages(payloads...)...); err == nil {
				c.ack(i, payloads, at.First)
			} else if errors.Is(err, stream.ErrSequenceTooOld) { // its record was rotated away
				c.mayHave(i, payloads)
				err = nil
			}
		}
		if err != nil {
			c.t.Errorf("%s: %v", payloads, err)
			return
		}
	}
}

// transact publishes to some streams in transactions of all isolation levels, with savepoints that are rolled back.
func (c *crowd) transact(node, worker int, random *rand.Rand) {
	var handles []*stream.Stream
	for _, name := range c.names {
		handles = append(handles, ensureNamed(c.t, c.nodes[node], name, false))
	}
	for k := 0; !c.over.Load(); k++ {
		sent := make(map[int][]string)
		err := pgx.BeginTxFunc(context.Background(), c.nodes[node], pgx.TxOptions{IsoLevel: levels[random.IntN(3)]}, func(tx pgx.Tx) error {
			for range 1 + random.IntN(3) {
				i := random.IntN(len(handles))
				kept := random.IntN(3) > 0
				err := pgx.BeginFunc(context.Background(), tx, func(inner pgx.Tx) error {
					p := fmt.Sprint("tx ", node, " ", worker, " ", k, "/", len(sent[i]))
					if !kept {
						p = "rolled back"
					}
					if err := handles[i].AppendTx(context.Background(), inner, messages(p)...); err != nil || !kept {
						return errors.Join(err, errFails)
					}
					sent[i] = append(sent[i], p)
					return nil
				})
				if kept && err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil && pg.Code(err) == "" {
			pg.Backoff(context.Background(), 3)
		}
		for i, payloads := range sent {
			switch {
			case err == nil:
				c.ack(i, payloads, 0)
			case pg.Code(err) != "40P01" && (pg.Code(err) == "" || pg.Retryable(err)): // no deadlocks
				c.mayHave(i, payloads)
			default:
				c.t.Error(err)
			}
		}
	}
}

// read follows a stream with reads, or with a subscription, and wants nothing to appear below what it has seen.
func (c *crowd) read(s *stream.Stream, sub *stream.Subscription) {
	var seen []int64
	for after := int64(0); !c.over.Load(); {
		var page []stream.Message
		var err error
		if sub != nil {
			page, err = sub.TryNext(context.Background(), 100)
		} else {
			page, err = s.Read(context.Background(), after, 100)
		}
		if err != nil && (sub != nil || !pg.Retryable(err)) {
			c.t.Errorf("read: %v", err)
			return
		}
		if err != nil {
			pg.Backoff(context.Background(), 3)
		}
		for _, m := range page {
			after = m.Position
			seen = append(seen, after)
		}
		if len(page) == 0 && sub != nil {
			ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond) // the load may be over
			sub.Wait(ctx)
			cancel()
		}
	}
	for i, m := range everything(c.t, s) {
		if i == len(seen) {
			return
		}
		if m.Position != seen[i] {
			c.t.Errorf("%s: message %d is at %d, and a reader has seen %d", s.Name(), i, m.Position, seen[i])
			return
		}
	}
}

// run runs the load until meanwhile has returned, and checks all answers.
func (c *crowd) run(seed uint64, cfgs []stream.HubConfig, meanwhile func()) {
	var work sync.WaitGroup
	for node, pool := range c.nodes {
		h, _ := runHub(c.t, pool, cfgs[node])
		for i, name := range c.names {
			work.Go(func() { c.append(node, i, rand.New(rand.NewPCG(seed, uint64(10*node+i)))) })
			s := ensureNamed(c.t, pool, name, false) // a handle that learns of nothing
			work.Go(func() { c.read(s, nil) })
			sub := subscribe(c.t, h, s, stream.After(0))
			work.Go(func() { c.read(s, sub) })
		}
		for w := range 2 {
			work.Go(func() { c.transact(node, w, rand.New(rand.NewPCG(seed, uint64(1000+10*node+w)))) })
		}
	}
	meanwhile()
	c.over.Store(true)
	work.Wait()
	for i, name := range c.names {
		c.check(i, lookUp(c.t, c.nodes[0], name))
	}
}

// check wants every message that was acknowledged once, at that position, and no other; and the messages of a call or transaction one
// after the other.
func (c *crowd) check(i int, s *stream.Stream) {
	got := map[string]int64{}
	for _, m := range everything(c.t, s) {
		p := string(m.Payload)
		if got[p] != 0 {
			c.t.Errorf("stream %d: %s twice", i, p)
		}
		got[p] = m.Position
		name, n, _ := strings.Cut(p, "/")
		if at, _ := strconv.Atoi(n); at > 0 && got[fmt.Sprint(name, "/", at-1)] != m.Position-1 {
			c.t.Errorf("stream %d: %s at %d is not after the one before it", i, p, m.Position)
		}
		if _, ok := c.acked[i][p]; !ok && !c.maybe[i][p] {
			c.t.Errorf("stream %d: %s was not acknowledged", i, p)
		}
	}
	for p, at := range c.acked[i] {
		if got[p] == 0 || at != 0 && got[p] != at {
			c.t.Errorf("stream %d: %s, which was said to be at %d, is at %d", i, p, at, got[p])
		}
	}
}

// TestAllAtOnce: nodes append, send requests twice, publish in their own transactions, and read, while a stream moves to its own tables,
// the records of requests are rotated, answers are lost, and sessions are terminated.
func TestAllAtOnce(t *testing.T) {
	t.Parallel()
	notShort(t)
	forSeeds(t, func(t *testing.T, seed uint64) {
		db := setup(t)
		random := rand.New(rand.NewPCG(seed, 1))
		c := newCrowd(t, pools(t, db.URL, 2), "moves", "stays", "own")
		c.writers[1] = cutPool(t, db, randomPlan(seed, 3000)) // whose answers are lost now and then
		c.run(seed, []stream.HubConfig{{Announce: true, TailBytes: 8 << 10, PageMessages: 20, PageBytes: 2 << 10}, {NoListen: true, Poll: 20 * time.Millisecond, PageMessages: 7}}, func() {
			for n := range 4 {
				c.answers.wait(t, 100+random.IntN(100))
				rotateBoth(t, db)
				if n == 1 {
					testkit.Eventually(t, "the stream moves", func() bool { // its session may be terminated, too
						_, err := db.Pool.Exec(context.Background(), `SELECT tidewire.own_stream(id) FROM tidewire.stream WHERE name = 'moves'`)
						return err == nil
					})
				}
				exec(t, db.Pool, `SELECT pg_terminate_backend(pid) FROM (SELECT pid FROM pg_stat_activity WHERE datname = current_database()
						AND pid <> pg_backend_pid() AND (application_name = 'tidewire writer' OR query ILIKE 'commit') ORDER BY random() LIMIT 2) AS x`)
			}
			c.answers.wait(t, 50)
		})
	})
}

// TestPostgreSQLKilled kills PostgreSQL under all loads at once. Then callers wait for it: those that stop get no answer, and what an
// Appender has accepted is stored when it is back.
func TestPostgreSQLKilled(t *testing.T) {
	t.Parallel()
	notShort(t)
	forSeeds(t, func(t *testing.T, seed uint64) {
		server := pgtest.Start(t)
		nodes := pools(t, server.URL(), 7)
		offsets := ensureOn(t, nodes[0], "offsets")
		random := rand.New(rand.NewPCG(seed, 4))
		c := newCrowd(t, nodes[:2], "shared", "own")
		over, killed, ready := make(chan struct{}), make(chan struct{}), make(chan struct{})
		var others sync.WaitGroup
		others.Go(func() { commitUnderLoad(t, nodes[2:4], offsets, over, func() { ready <- struct{}{} }) })
		others.Go(func() { keepUnderLoad(t, nodes[4:6], seed, func([]*kept) { ready <- struct{}{}; <-killed }) })
		c.run(seed, []stream.HubConfig{{Announce: true, TailBytes: 16 << 10, PageBytes: 4 << 10}, {Announce: true}}, func() {
			<-ready
			<-ready
			for range 2 {
				c.answers.wait(t, 50+random.IntN(50))
				pgtest.Crash(t, server)
			}
			c.answers.wait(t, 50)
			close(over)
			close(killed)
		})
		others.Wait()
		killedWithoutLoad(t, server, nodes[6], ensureOn(t, nodes[6], "last"))
	})
}

func killedWithoutLoad(t *testing.T, server *embedpg.Server, pool *pgxpool.Pool, s *stream.Stream) {
	groups, stopGroups := runGroups(t, pool, stream.GroupsConfig{StopTimeout: 100 * time.Millisecond})
	g := openGroup(t, groups, s, "last")
	head, err := s.Head(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	must(t, server.Kill(t.Context()))
	a, stop := start(t, pool, s, stream.AppenderConfig{})
	stored := submitAll(t, []*stream.Appender{a}, "kept")
	var waiting, calling sync.WaitGroup
	for _, call := range []func() error{
		func() error { _, err := g.Commit(t.Context(), 5); return err },
		func() error { return g.Seek(t.Context(), 5) },
	} {
		calling.Add(1)
		waiting.Go(func() {
			calling.Done()
			if err := call(); !errors.Is(err, stream.ErrOutcomeUnknown) && !errors.Is(err, stream.ErrClosed) {
				t.Errorf("%v, want ErrOutcomeUnknown, or ErrClosed if it came late", err)
			}
		})
	}
	calling.Wait()
	stopGroups()
	waiting.Wait()
	must(t, server.Restart(t.Context()))
	stop()
	stored.Wait()
	if all, err := s.Read(t.Context(), head, 10); err != nil || len(all) != 1 || all[0].Position != stored.firsts[0] || stored.errs[0] != nil {
		t.Errorf("stored %v, %v, want one at %d, %v", all, err, stored.firsts[0], stored.errs[0])
	}
}

// rotateBoth rotates the records of requests, as if they had expired. It may find that a session was terminated.
func rotateBoth(t *testing.T, db pgtest.DB) {
	t.Helper()
	exec(t, db.Pool, agedSQL, stream.KeepRequests)
	exec(t, db.Pool, agedSharedSQL, stream.KeepRequests)
	for _, name := range []string{"stays", "own"} {
		if err := stream.RotateRequests(t.Context(), db.Pool, lookUp(t, db.Pool, name)); err != nil && !pg.Retryable(err) {
			t.Error(err)
		}
	}
}
