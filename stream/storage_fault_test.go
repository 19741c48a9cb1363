package stream_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/pg"
	"github.com/tidewire/tidewire/stream"
)

func ensureNamed(t *testing.T, pool *pgxpool.Pool, name string, own bool) *stream.Stream {
	t.Helper()
	s, err := stream.Ensure(t.Context(), pool, name, stream.Options{Keyed: true, OwnTables: own})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// wasEnded reports whether err is the error of a terminated session.
func wasEnded(err error) bool { return err != nil && (pg.Code(err) == "57P01" || pg.Code(err) == "") }

// TestShared_AllAtOnce: nodes append, also with requests, publish in their own transactions,
// at every isolation level, and read, while streams move and sessions are terminated. Every
// acknowledged message is stored once, and nothing appears below a seen position.
func TestShared_AllAtOnce(t *testing.T) {
	t.Parallel()
	db := setup(t)
	const nStreams = 6
	nodes := pools(t, db.URL, 3)
	var names []string
	for i := range nStreams {
		names = append(names, fmt.Sprint("s", i))
		ensureNamed(t, db.Pool, names[i], i == 5)
	}
	var mu sync.Mutex
	acked := make([]map[string]int64, nStreams) // position, or 0 if it was not returned
	maybe := make([]map[string]bool, nStreams)
	for i := range acked {
		acked[i], maybe[i] = map[string]int64{}, map[string]bool{}
	}
	ctx, stop := context.WithTimeout(t.Context(), 5*time.Second)
	defer stop()
	var work, readers sync.WaitGroup
	var appends, txs, txFailed, kills atomic.Int64
	for n, pool := range nodes {
		for i := range nStreams {
			s := ensureNamed(t, pool, names[i], false)
			a := run(t, pool, s, stream.AppenderConfig{})
			work.Go(func() {
				for k := 0; ctx.Err() == nil; k++ {
					payload := fmt.Sprintf("a-%d-%d-%d", n, i, k)
					var first int64
					var err error
					if k > 60 && k%50 == 7 && i == 4 {
						var st stream.Appended
						st, err = a.AppendAs(context.Background(), stream.RequestID{Client: fmt.Sprint("p", n), Sequence: int64(k)}, stream.Message{Payload: []byte(payload)})
						first = st.First
					} else {
						first, err = firstOf(a.Append(context.Background(), stream.Message{Payload: []byte(payload), Key: fmt.Sprint(k % 3)}))
					}
					if err != nil {
						t.Errorf("append %s: %v", payload, err)
						return
					}
					appends.Add(1)
					mu.Lock()
					acked[i][payload] = first
					mu.Unlock()
					if k%20 == 0 {
						time.Sleep(time.Millisecond)
					}
				}
			})
			readers.Go(func() { // a handle that gets no notifications
				s := ensureNamed(t, pool, names[i], false)
				after := int64(0)
				seen := map[int64]bool{}
				for ctx.Err() == nil {
					page, err := s.Read(context.Background(), after, 100)
					if wasEnded(err) {
						continue
					}
					if err != nil {
						t.Errorf("read: %v", err)
						return
					}
					for _, m := range page {
						if m.Position <= after {
							t.Errorf("order")
						}
						after = m.Position
						seen[after] = true
					}
					head, err := s.Head(context.Background())
					if !wasEnded(err) && (err != nil || head < after) {
						t.Errorf("head %d < %d, %v", head, after, err)
					}
				}
				for _, m := range everything(t, s) {
					if m.Position <= after && !seen[m.Position] {
						t.Errorf("stream %d: %d appeared below %d", i, m.Position, after)
						return
					}
				}
			})
		}
		for w := range 3 {
			handles := make([]*stream.Stream, nStreams)
			for i := range handles {
				handles[i] = ensureNamed(t, pool, names[i], false)
			}
			work.Go(func() {
				for k := 0; ctx.Err() == nil; k++ {
					tx, err := pool.BeginTx(context.Background(), pgx.TxOptions{IsoLevel: levels[rand.IntN(3)]})
					if err != nil {
						continue
					}
					_, err = tx.Exec(context.Background(), `SELECT 1`)
					time.Sleep(time.Duration(rand.IntN(5)) * time.Millisecond)
					var to []int
					payload := fmt.Sprintf("t-%d-%d-%d", n, w, k)
					for range 1 + rand.IntN(3) {
						i := rand.IntN(nStreams)
						if err == nil {
							p := fmt.Sprint(payload, "-", len(to))
							err = handles[i].AppendTx(context.Background(), tx, stream.Message{Payload: []byte(p)})
							to = append(to, i)
						}
					}
					if err != nil {
						tx.Rollback(context.Background())
						continue
					}
					err = tx.Commit(context.Background())
					mu.Lock()
					for j, i := range to {
						p := fmt.Sprint(payload, "-", j)
						if err == nil {
							acked[i][p] = 0
						} else if wasEnded(err) {
							maybe[i][p] = true
						}
					}
					mu.Unlock()
					txs.Add(1)
					if err != nil {
						txFailed.Add(1)
						t.Logf("commit: %v", err)
					}
				}
			})
		}
	}
	work.Go(func() {
		for i := range 4 {
			time.Sleep(800 * time.Millisecond)
			for ended := true; ended; {
				_, err := db.Pool.Exec(context.Background(), `SELECT tidewire.own_stream(id) FROM tidewire.stream WHERE name = $1`, names[i])
				if ended = wasEnded(err); err != nil && !ended {
					t.Error(err)
				}
			}
		}
	})
	work.Go(func() {
		for ctx.Err() == nil {
			time.Sleep(time.Duration(50+rand.IntN(100)) * time.Millisecond)
			tag, _ := db.Pool.Exec(context.Background(), `SELECT pg_terminate_backend(pid) FROM (SELECT pid FROM pg_stat_activity
				WHERE datname = current_database() AND pid <> pg_backend_pid() AND (application_name = 'tidewire writer' OR query ILIKE 'commit') ORDER BY random() LIMIT 1) AS x`)
			kills.Add(tag.RowsAffected())
		}
	})
	work.Wait()
	readers.Wait()
	for i, name := range names {
		s, err := stream.Lookup(t.Context(), db.Pool, name)
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]int64{}
		last := int64(0)
		for _, m := range everything(t, s) {
			p := string(m.Payload)
			if got[p] != 0 {
				t.Errorf("%s twice", p)
			}
			if m.Position <= last {
				t.Errorf("order")
			}
			last = m.Position
			got[p] = m.Position
		}
		for p, at := range acked[i] {
			if got[p] == 0 || at != 0 && got[p] != at {
				t.Errorf("stream %d: %s told at %d is at %d", i, p, at, got[p])
			}
		}
		for p := range got {
			if _, ok := acked[i][p]; !ok && !maybe[i][p] {
				t.Errorf("stream %d: %s was not acknowledged", i, p)
			}
		}
		t.Logf("%s: %d messages, last %d", name, len(got), last)
	}
	t.Logf("%d kills, %d appends, %d transactions, %d failed", kills.Load(), appends.Load(), txs.Load(), txFailed.Load())
}
