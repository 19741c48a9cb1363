package schedule

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/tidewire/tidewire/internal/testkit"
)

// TestRun_OnceOverNodes: several nodes run schedules that repeat and that happen once; nodes end in the middle of their work, by their own end or because
// PostgreSQL ends their session. Each due time has one message, and none is missing.
func TestRun_OnceOverNodes(t *testing.T) {
	t.Parallel()
	db := migrated.Open(t)
	const repeating, once = 20, 2000
	for i := range repeating {
		put(t, db.Pool, Spec{Name: fmt.Sprint("every ", i), Cron: "@every 1s", Stream: "ticks", CatchUp: All})
	}
	exec(t, db.Pool, `SELECT tidewire.enqueue_at('jobs', 'x', clock_timestamp() - interval '1 min', name => 'once ' || n) FROM generate_series(1, $1) AS n`, once)
	over := make(chan struct{})
	var nodes sync.WaitGroup
	for n := range 3 {
		nodes.Go(func() { dieAndReturn(t, newPool(t, db.URL), rand.New(rand.NewPCG(uint64(n), 1)), over) })
	}
	testkit.Eventually(t, "three due times of each", func() bool {
		var least int
		if err := db.Pool.QueryRow(t.Context(), `SELECT coalesce(min(extract(epoch FROM last_due_at - since)), 0)::int FROM tidewire.schedules WHERE cron IS NOT NULL`).Scan(&least); err != nil {
			t.Fatal(err)
		}
		return least >= 3
	})
	close(over)
	nodes.Wait()
	stop := start(t, newRunner(db.Pool))
	testkit.Eventually(t, "the end of the schedules that happen once", func() bool {
		var left int
		if err := db.Pool.QueryRow(t.Context(), `SELECT count(*) FROM tidewire.schedules WHERE at IS NOT NULL`).Scan(&left); err != nil {
			t.Fatal(err)
		}
		return left == 0
	})
	stop()
	names := make(map[string]bool)
	for _, m := range read(t, db.Pool, "jobs") {
		name, _ := stamp(t, m)
		if names[name] {
			t.Errorf("%s has two messages", name)
		}
		names[name] = true
	}
	if len(names) != once {
		t.Errorf("%d messages of schedules that happen once, want %d", len(names), once)
	}
	checkTicks(t, db.Pool)
}

// checkTicks wants one message for each due time of each schedule that repeats, from the first to the last.
func checkTicks(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	dues := make(map[string]map[int64]bool)
	for _, m := range read(t, pool, "ticks") {
		name, due := stamp(t, m)
		if dues[name] == nil {
			dues[name] = make(map[int64]bool)
		}
		if dues[name][due.Unix()] {
			t.Errorf("%s has two messages for %v", name, due)
		}
		dues[name][due.Unix()] = true
	}
	all, err := List(t.Context(), pool, "", 100)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		var since time.Time
		if err := pool.QueryRow(t.Context(), `SELECT since FROM tidewire.schedules WHERE name = $1`, s.Name).Scan(&since); err != nil {
			t.Fatal(err)
		}
		for at := since.Unix() + 1; at <= s.Last.Unix(); at++ {
			if !dues[s.Name][at] {
				t.Errorf("%s has no message for %v", s.Name, time.Unix(at, 0))
			}
			delete(dues[s.Name], at)
		}
		if len(dues[s.Name]) > 0 {
			t.Errorf("%s has messages that its row does not know: %v", s.Name, dues[s.Name])
		}
	}
}

// dieAndReturn runs nodes one after another; each ends at a random point of its work.
func dieAndReturn(t *testing.T, pool *pgxpool.Pool, random *rand.Rand, over <-chan struct{}) {
	for {
		select {
		case <-over:
			return
		default:
		}
		r := newRunner(pool)
		ctx, die := context.WithCancel(context.Background())
		steps := 1 + random.IntN(12)
		byPostgres := random.IntN(2) == 0
		r.between = func(string) {
			if steps--; steps > 0 {
				return
			}
			if byPostgres {
				pool.Exec(context.Background(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
					WHERE datname = current_database() AND application_name = 'tidewire writer' AND state = 'idle in transaction'`)
				steps = 5
				byPostgres = false
				return
			}
			die()
		}
		go func() {
			select {
			case <-over:
				die()
			case <-ctx.Done():
			}
		}()
		r.Run(ctx)
	}
}

// TestRun_Missed: what is written after the servers were away.
func TestRun_Missed(t *testing.T) {
	t.Parallel()
	db := migrated.Open(t)
	hour := now(t, db.Pool).UTC().Truncate(time.Hour)
	ago := func(n int) time.Time { return hour.Add(-time.Duration(n) * time.Hour) }
	specs := map[string]struct {
		cron    string
		catchUp CatchUp
		due     time.Time
		want    []time.Time
	}{
		"latest": {"0 * * * *", Latest, ago(5), []time.Time{ago(0)}},
		"all":    {"0 * * * *", All, ago(3), []time.Time{ago(3), ago(2), ago(1), ago(0)}},
		"all of a day": {"0 * * * *", All, ago(100), func() (w []time.Time) {
			for n := 23; n >= 0; n-- {
				w = append(w, ago(n))
			}
			return w
		}()},
		"all, long ago": {fmt.Sprintf("0 %d %d %d *", ago(72).Hour(), ago(72).Day(), ago(72).Month()), All, ago(72), []time.Time{ago(72)}},
		"none, late":    {fmt.Sprintf("0 %d * * *", ago(3).Hour()), None, ago(3), nil},
	}
	for name, c := range specs {
		put(t, db.Pool, Spec{Name: name, Cron: c.cron, Stream: "ticks", CatchUp: c.catchUp, Paused: true})
		exec(t, db.Pool, `UPDATE tidewire.schedules SET paused = false, look_at = clock_timestamp() WHERE name = $1`, name)
		missed(t, db.Pool, name, c.due)
	}
	exec(t, db.Pool, `SELECT tidewire.publish_at('parts', 'x', $1, name => 'once')`, ago(50))
	start(t, newRunner(db.Pool))
	testkit.Eventually(t, "the schedules' next due times", func() bool {
		var left int
		if err := db.Pool.QueryRow(t.Context(), `SELECT count(*) FROM tidewire.schedules WHERE look_at <= clock_timestamp()`).Scan(&left); err != nil {
			t.Fatal(err)
		}
		return left == 0
	})
	got := make(map[string][]time.Time)
	for _, m := range read(t, db.Pool, "ticks") {
		name, due := stamp(t, m)
		if !due.After(hour) { // the test may run over the end of an hour
			got[name] = append(got[name], due)
		}
	}
	for name, c := range specs {
		if fmt.Sprint(got[name]) != fmt.Sprint(c.want) {
			t.Errorf("%s: messages for %v, want %v", name, got[name], c.want)
		}
	}
	if _, err := Get(t.Context(), db.Pool, "once"); err != ErrNotFound {
		t.Errorf("the schedule that happened once: %v", err)
	}
}

// TestRun_Failures: what cannot be written holds up nothing else, says why, and is written when it can be.
func TestRun_Failures(t *testing.T) {
	t.Parallel()
	db := migrated.Open(t)
	exec(t, db.Pool, `SELECT tidewire.schedule('bad cron', 'often', 'x', queue => 'jobs')`)
	exec(t, db.Pool, `SELECT tidewire.schedule('bad zone', '* * * * *', 'x', queue => 'jobs', time_zone => 'Mars/Olympus')`)
	exec(t, db.Pool, `INSERT INTO tidewire.schedules (name, at, queue, payload, due_at, look_at) VALUES ('no queue', now(), 'later', 'x', now(), now())`)
	exec(t, db.Pool, `INSERT INTO tidewire.schedules (name, at, stream, payload, due_at, look_at) VALUES ('queue stream', now(), 'jobs', 'x', now(), now())`)
	exec(t, db.Pool, `INSERT INTO tidewire.schedules (name, at, queue, priority, payload, due_at, look_at) VALUES ('priority', now(), 'jobs', 7, 'x', now(), now())`)
	exec(t, db.Pool, `SELECT tidewire.enqueue_at('jobs', 'good', now(), name => 'good')`)
	start(t, newRunner(db.Pool))
	testkit.Eventually(t, "the good message", func() bool { return len(read(t, db.Pool, "jobs")) == 1 })
	for name, want := range map[string]string{
		"bad cron": "cron: ", "bad zone": "time_zone: ", "no queue": "not found", "queue stream": "holds the messages of a queue", "priority": "priority",
	} {
		testkit.Eventually(t, "the error of "+name, func() bool {
			s, err := Get(t.Context(), db.Pool, name)
			return err == nil && strings.Contains(s.Error, want)
		})
	}
	exec(t, db.Pool, `SELECT tidewire.schedule('bad cron', '@every 1s', 'mended', queue => 'jobs')`)
	testkit.Eventually(t, "the mended message", func() bool { return len(read(t, db.Pool, "jobs")) > 1 })
	s, err := Get(t.Context(), db.Pool, "bad cron")
	if err != nil || s.Error != "" || s.Last.IsZero() {
		t.Errorf("mended: %+v, %v", s, err)
	}
}

// TestRun_Many: many schedules that happen once are written in batches, and large payloads in smaller ones.
func TestRun_Many(t *testing.T) {
	t.Parallel()
	db := migrated.Open(t)
	exec(t, db.Pool, `SELECT tidewire.enqueue_at('urgent', convert_to(n::text, 'UTF8'), now() - interval '1 min', priority => n % 3) FROM generate_series(1, 5000) AS n`)
	exec(t, db.Pool, `SELECT tidewire.publish_at('parts', convert_to(repeat('x', 1000000), 'UTF8'), now() - interval '1 min', key => n::text) FROM generate_series(1, 20) AS n`)
	exec(t, db.Pool, `SELECT tidewire.enqueue_at('jobs', 'x', now() + interval '100 days') FROM generate_series(1, 1000)`)
	r := newRunner(db.Pool)
	start(t, r)
	testkit.Eventually(t, "all due messages", func() bool { return r.Sent() == 5020 })
	var left int
	if err := db.Pool.QueryRow(t.Context(), `SELECT count(*) FROM tidewire.schedules`).Scan(&left); err != nil || left != 1000 {
		t.Errorf("%d schedules are left, %v, want 1000", left, err)
	}
	total := 0
	for i := range 3 {
		total += len(read(t, db.Pool, fmt.Sprint("urgent/", i)))
	}
	if total != 5000 {
		t.Errorf("%d messages, want 5000", total)
	}
}
