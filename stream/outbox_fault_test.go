package stream_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/pg"
	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/stream"
)

// TestAppendTx_VisibleOrderIsPositionOrder mixes transactions of all kinds with
// Appenders; followers see all messages once and in order, and the messages of each
// transaction are stored at consecutive positions, or not at all.
func TestAppendTx_VisibleOrderIsPositionOrder(t *testing.T) {
	t.Parallel()
	db, s := ensure(t)
	nodes := pools(t, db.URL, 2)
	var last atomic.Int64
	var writing, following sync.WaitGroup
	var kept sync.Map
	var followers []*follower
	for n, pool := range nodes {
		h, _ := runHub(t, pool, stream.HubConfig{Poll: 5 * time.Millisecond})
		a := run(t, pool, s, stream.AppenderConfig{Writer: stream.WriterConfig{Method: stream.Method(n + 1)}})
		writing.Go(func() {
			for i := range 100 {
				name := fmt.Sprint("p append ", n, " ", i)
				mustAppend(t, a, stream.Message{Payload: []byte(name)})
				kept.Store(name, 1)
			}
		})
		for c := range 3 {
			writing.Go(func() {
				random := rand.New(rand.NewPCG(uint64(n), uint64(c)))
				for i := range 40 {
					name := fmt.Sprint("p tx ", n, " ", c, " ", i)
					if size := randomTx(t, pool, s, random, name); size > 0 {
						kept.Store(name, size)
					}
				}
			})
		}
		for range 3 {
			f := &follower{}
			followers = append(followers, f)
			following.Go(func() { f.follow(t, h, s, &last, false) })
		}
	}
	writing.Wait()
	stored := everything(t, s)
	last.Store(stored[len(stored)-1].Position)
	following.Wait()
	for _, f := range followers {
		f.check(t, stored)
	}
	checkTransactions(t, stored, &kept)
}

// randomTx runs a transaction that publishes, and returns how many messages of
// it were committed.
func randomTx(t *testing.T, pool *pgxpool.Pool, s *stream.Stream, random *rand.Rand, name string) (size int) {
	tx, err := pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: levels[random.IntN(len(levels))]})
	if err != nil {
		t.Error(err)
		return 0
	}
	for range 1 + random.IntN(3) {
		msgs := make([]stream.Message, 1+random.IntN(3))
		for i := range msgs {
			msgs[i].Payload = fmt.Append(nil, name, "/", size+i)
		}
		inner, err := tx.Begin(t.Context()) // a savepoint
		if err == nil {
			err = s.AppendTx(t.Context(), inner, msgs...)
		}
		if err != nil {
			t.Error(err)
			return 0
		}
		if random.IntN(3) == 0 {
			err = inner.Rollback(t.Context())
		} else {
			err = inner.Commit(t.Context())
			size += len(msgs)
		}
		if err != nil {
			t.Error(err)
		}
	}
	if random.IntN(4) == 0 {
		return 0
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Error(err)
		return 0
	}
	return size
}

// checkTransactions wants the messages of each committed transaction at consecutive
// positions, in the order of the calls, and no others.
func checkTransactions(t *testing.T, stored []stream.Message, kept *sync.Map) {
	t.Helper()
	found := 0
	for i := 0; i < len(stored); {
		name, _, _ := strings.Cut(string(stored[i].Payload), "/")
		size, ok := kept.Load(name)
		if !ok {
			t.Fatalf("%q was not committed", name)
		}
		for n := range size.(int) {
			want := name
			if strings.HasPrefix(name, "p tx") {
				want = fmt.Sprint(name, "/", n)
			}
			if m := stored[i+n]; string(m.Payload) != want || m.Position != stored[i].Position+int64(n) {
				t.Fatalf("%q at %d, want %q at %d", m.Payload, m.Position, want, stored[i].Position+int64(n))
			}
		}
		found++
		i += size.(int)
	}
	kept.Range(func(any, any) bool { found--; return true })
	if found != 0 {
		t.Errorf("%d transactions too many or too few", found)
	}
}

// TestAppendTx_SeveralStreams lets transactions append to the same streams in any
// order: none may deadlock.
func TestAppendTx_SeveralStreams(t *testing.T) {
	t.Parallel()
	db := setup(t)
	all := []*stream.Stream{ensureOn(t, db.Pool, "a"), ensureOn(t, db.Pool, "b"), ensureOn(t, db.Pool, "c")}
	var committing sync.WaitGroup
	for n, pool := range pools(t, db.URL, 2) {
		for c := range 3 {
			committing.Go(func() {
				random := rand.New(rand.NewPCG(uint64(n), uint64(c)))
				for range 60 {
					err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
						for _, i := range random.Perm(len(all)) {
							if err := all[i].AppendTx(t.Context(), tx, stream.Message{}); err != nil {
								return err
							}
						}
						return nil
					})
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	committing.Wait()
	for _, s := range all {
		if head, err := s.Head(t.Context()); head != 360 || err != nil {
			t.Errorf("stream %s ends at %d, %v, want 360", s.Name(), head, err)
		}
	}
}

// TestAppendTx_OutboxStaysEmpty publishes while another transaction holds an old
// snapshot, and checks the size of every table of the session.
func TestAppendTx_OutboxStaysEmpty(t *testing.T) {
	t.Parallel()
	db, s := ensure(t)
	repeatableRead(t, db, `SELECT FROM tidewire.stream`)
	conn, err := db.Pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	for range 50 {
		err := pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
			return s.AppendTx(t.Context(), tx, slices.Repeat([]stream.Message{{Payload: make([]byte, 5000)}}, 20)...)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	var size, tables int64
	// An empty TOAST index has a page or two.
	err = conn.QueryRow(t.Context(), `SELECT coalesce(sum(pg_total_relation_size(oid)), -1), count(*) FROM pg_class WHERE relnamespace = pg_my_temp_schema() AND relkind = 'r'`).Scan(&size, &tables)
	if err != nil || tables != 2 || size > 4*8192 {
		t.Errorf("%d temporary tables take %d bytes, %v", tables, size, err)
	}
	if head, err := s.Head(t.Context()); head != 1000 || err != nil {
		t.Errorf("head %d, %v, want 1000", head, err)
	}
}

// TestAppendTx_PostgreSQLKilled: a transaction whose commit was answered is stored
// completely and once; one without an answer is stored completely or not at all.
func TestAppendTx_PostgreSQLKilled(t *testing.T) {
	t.Parallel()
	for seed := range pgtest.Seeds() {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			server := pgtest.Start(t)
			nodes := pools(t, server.URL(), 2)
			s := ensureOn(t, nodes[0], "killed")
			random := rand.New(rand.NewPCG(seed, 7))
			over := make(chan struct{})
			var answered sync.Map
			var running sync.WaitGroup
			for n, pool := range nodes {
				for c := range 4 {
					running.Go(func() { publishUntil(t, over, pool, s, fmt.Sprint("p tx ", n, c), &answered) })
				}
			}
			for range 2 {
				time.Sleep(time.Duration(100+random.IntN(300)) * time.Millisecond)
				pgtest.Crash(t, server)
			}
			time.Sleep(100 * time.Millisecond)
			close(over)
			running.Wait()
			stored := everything(t, s)
			for _, m := range stored { // also those without an answer
				name, _, _ := strings.Cut(string(m.Payload), "/")
				answered.LoadOrStore(name, 2)
			}
			checkTransactions(t, stored, &answered)
		})
	}
}

// publishUntil commits transactions of two messages, and records those that were
// answered.
func publishUntil(t *testing.T, over <-chan struct{}, pool *pgxpool.Pool, s *stream.Stream, prefix string, answered *sync.Map) {
	for i := 0; ; i++ {
		select {
		case <-over:
			return
		default:
		}
		name := fmt.Sprint(prefix, " ", i)
		err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			return s.AppendTx(t.Context(), tx, stream.Message{Payload: []byte(name + "/0")}, stream.Message{Payload: []byte(name + "/1")})
		})
		switch {
		case err == nil:
			answered.Store(name, 2)
		case !pg.Retryable(err):
			t.Errorf("%s: %v", name, err)
		}
	}
}
