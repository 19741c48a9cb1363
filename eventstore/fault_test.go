package eventstore_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/eventstore"
	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/internal/testkit"
)

// cuttable is a connection that breaks at random: before it sends something, after
// that, or when PostgreSQL has processed it and answers.
type cuttable struct {
	net.Conn
	cut      func() int
	atAnswer atomic.Bool
}

func (c *cuttable) Write(b []byte) (int, error) {
	how := c.cut()
	if how == 0 {
		c.Conn.Close()
		return 0, net.ErrClosed
	}
	n, err := c.Conn.Write(b)
	switch how {
	case 1:
		c.Conn.Close()
	case 2:
		c.atAnswer.Store(true)
	}
	return n, err
}

func (c *cuttable) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.atAnswer.Load() {
		c.Conn.Close()
		return 0, io.ErrUnexpectedEOF
	}
	return n, err
}

// cutPool is a pool of connections that break at a fraction of their writes.
func cutPool(t *testing.T, url string, seed uint64, oneOf int) *pgxpool.Pool {
	t.Helper()
	var mu sync.Mutex
	random := rand.New(rand.NewPCG(seed, 7))
	cut := func() int {
		mu.Lock()
		defer mu.Unlock()
		return random.IntN(oneOf)
	}
	return eventstore.PoolThrough(t, url, func(c net.Conn) net.Conn { return &cuttable{Conn: c, cut: cut} })
}

// openThrough is open through a pool whose connections break: it repeats what meets a break.
func openThrough(t *testing.T, pool *pgxpool.Pool, cfg eventstore.Config) (s *eventstore.Store) {
	t.Helper()
	testkit.Eventually(t, "the store is opened", func() (opened bool) {
		var err error
		s, err = lookupStore(t.Context(), pool, "", cfg)
		return err == nil
	})
	t.Cleanup(func() { s.Close(context.Background()) })
	return s
}

// TestAppendIf_ReplayedOneByOne races two Stores, of which one loses its connections: the stored events are those of all accepted
// appends, one after the other, in the order in which they were answered. Meanwhile a transaction is open that has written: a check
// that relied on the oldest running transaction would miss all conflicts.
func TestAppendIf_ReplayedOneByOne(t *testing.T) {
	slow(t)
	t.Parallel()
	for seed := range pgtest.Seeds() {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			db := setup(t)
			open(t, db.Pool, eventstore.Config{})
			writing := begin(t, db.Pool)
			mustExec(t, writing, `CREATE TABLE other AS SELECT count(*) FROM tidewire.events_1`)
			cfg := eventstore.Config{TailEvents: 40}
			var r racers
			for _, pool := range []*pgxpool.Pool{poolOf(t, db.URL), cutPool(t, db.URL, seed, 60)} {
				r.stores = append(r.stores, openThrough(t, pool, cfg))
			}
			r.race(t.Context(), "caller", seed, 20, 40)
			r.check(t, readStored(t, db.Pool))
			wantIndexed(t, db.Pool)
		})
	}
}

// TestAppendIf_ReplayedAfterKills kills PostgreSQL under way. A subscription waits while PostgreSQL is away, and gets all events.
func TestAppendIf_ReplayedAfterKills(t *testing.T) {
	slow(t)
	t.Parallel()
	for seed := range pgtest.Seeds() {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			server := pgtest.Start(t)
			pool, err := openMigrated(t.Context(), server.URL())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(pool.Close)
			var r racers
			r.stores = append(r.stores, open(t, pool, eventstore.Config{}), openThrough(t, cutPool(t, server.URL(), seed, 60), eventstore.Config{TailEvents: 20}))
			sub := follow(t, r.stores[0], eventstore.Everything(), 0)
			racing, over := context.WithCancel(t.Context())
			defer over()
			var callers sync.WaitGroup
			callers.Go(func() { r.race(racing, "caller", seed, 16, 1<<30) })
			random := rand.New(rand.NewPCG(seed, 4))
			for range 2 {
				<-r.more(20 + random.IntN(200))
				pgtest.Crash(t, server)
			}
			<-r.more(50)
			over()
			callers.Wait()
			log := readStored(t, pool)
			for next := 0; next < len(log); {
				page, err := sub.Next(soon(t))
				if err != nil {
					t.Fatal(err)
				}
				for _, e := range page[:min(len(page), len(log)-next)] { // an abandoned append may have been stored since
					if e.Position != log[next].position {
						t.Fatalf("the subscription has the event at %d, want number %d of %d", e.Position, next, len(log))
					}
					next++
				}
			}
			r.check(t, log)
			wantIndexed(t, pool)
		})
	}
}

// wantIndexed fails the test unless the index has exactly one row for each tag of each
// event.
func wantIndexed(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	var missing, wrong int
	err := pool.QueryRow(t.Context(), `
SELECT (SELECT count(*) FROM tidewire.events_1 e
		WHERE (SELECT count(DISTINCT tag) FROM unnest(e.tags) AS tag) <> (SELECT count(*) FROM tidewire.events_1_tag s WHERE s.position = e.position)),
	(SELECT count(*) FROM tidewire.events_1_tag s WHERE NOT EXISTS (SELECT FROM tidewire.events_1 e WHERE e.position = s.position))`,
	).Scan(&missing, &wrong)
	if err != nil || missing+wrong > 0 {
		t.Errorf("%d events are not indexed rightly, %d rows of the index are of none, %v", missing, wrong, err)
	}
}
