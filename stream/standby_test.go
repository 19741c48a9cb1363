package stream_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/pg"
	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/internal/testkit"
	"github.com/tidewire/tidewire/migrate"
	"github.com/tidewire/tidewire/standby"
	"github.com/tidewire/tidewire/stream"
)

// TestStandby: one primary and its standby. At first each commit waits for the standby, then it lags, hangs and stops.
func TestStandby(t *testing.T) {
	t.Parallel()
	notShort(t)
	p := pgtest.StartPair(t, openMigrated)
	step := func(name string, test func(*testing.T, pgtest.Pair)) {
		t.Run(name, func(t *testing.T) { test(t, p) })
	}
	step("answers when replicated", answersWhenReplicated)
	step("catch up", standbyCatchUp)
	step("page is full", standbyPageIsFull)
	p.Unsynchronised(t)
	step("same answers", standbySameAnswers)
	step("lags", standbyLags)
}

// answersWhenReplicated: while the standby receives nothing, no call succeeds, whatever ends the
// waits of the commits. When the standby continues, the calls succeed, and their data is on the
// standby.
func answersWhenReplicated(t *testing.T, p pgtest.Pair) {
	const timeout = 300 * time.Millisecond
	together, alone := stream.AppenderConfig{}, stream.AppenderConfig{Linger: time.Millisecond}
	together.Writer.Timeout, alone.Writer.Timeout = timeout, timeout
	for name, end := range pgtest.WaitsEnd {
		t.Run(name, func(t *testing.T) {
			a, b := ensureOn(t, p.Pool, name+" a"), ensureOn(t, p.Pool, name+" b")
			appendTo, appendAlone := run(t, p.Pool, a, together), run(t, p.Pool, b, alone)
			appended := func(_ stream.Appended, err error) error { return err }
			position := func(_ int64, err error) error { return err }
			p.Answers(t, end, "append", func(ctx context.Context) error { return appended(appendTo.Append(ctx, stream.Message{})) })
			p.Answers(t, end, "append alone", func(ctx context.Context) error { return appended(appendAlone.Append(ctx, stream.Message{})) })
			elsewhere := run(t, p.Pool, ensureOn(t, p.Pool, name+" a"), alone)
			both := make(chan error, 2)
			p.Answers(t, end, "append as", func(ctx context.Context) error {
				for _, node := range []*stream.Appender{appendTo, elsewhere} {
					go func() {
						_, err := node.AppendAs(ctx, stream.RequestID{Client: "p"}, stream.Message{})
						both <- err
					}()
				}
				return <-both
			})
			must(t, <-both)
			if name != "deadline" { // the timeout of a commit is long
				groups, _ := runGroups(t, p.Pool, stream.GroupsConfig{})
				group := openGroup(t, groups, a, "g")
				p.Answers(t, end, "commit", func(ctx context.Context) error { return position(group.Commit(ctx, 2)) })
			}
			p.CatchUp(t)
			after := pools(t, p.Standby.URL(), 1)[0]
			for name, want := range map[string]int{name + " a": 2, name + " b": 1} {
				s := lookUp(t, after, name)
				if page, err := s.Read(t.Context(), 0, 10); err != nil || len(page) != want {
					t.Errorf("stream %s at the standby: %d messages, %v, want %d", name, len(page), err, want)
				}
			}
			if offset := value[int64](t, after, `SELECT coalesce(sum(committed), 0) FROM tidewire.read_offsets(ARRAY(SELECT id FROM tidewire.stream_group WHERE stream = $1))`, a.ID()); name != "deadline" && offset != 2 {
				t.Errorf("offset at the standby: %d, want 2", offset)
			}
		})
	}
}

// standbyCatchUp: a subscription far from the end, and pages, are read from the standby, and the end from the primary.
func standbyCatchUp(t *testing.T, p pgtest.Pair) {
	for name, opts := range storages {
		s := ensureWith(t, p.Pool, "catch up "+name, opts)
		reader := readerOf(t, p.Pool, p.Standby.URL())
		hub, _ := runHub(t, p.Pool, stream.HubConfig{PageMessages: 100, Standby: reader})
		a := notified(t, p.Pool, s, hub)
		last := appendMany(t, a, name, 1500)
		p.CatchUp(t)
		sub := subscribe(t, hub, s, stream.After(0))
		catchUp(t, sub, s, last)
		if stats := reader.Stats(); stats.Standby < 10 || !stats.Used {
			t.Errorf("%s: of a subscription: %+v, want 14 pages from the standby", name, stats)
		}
		for i := range 20 { // the end, which the standby may not have yet, is not read from it
			catchUp(t, sub, s, appendMany(t, a, fmt.Sprint("live ", i), 3))
		}
		before := reader.Stats().Standby
		p.CatchUp(t)
		if all := readPages(t, s.WithStandby(reader), 100); len(all) != 1560 || string(all[1559].Payload) != "live 19 2" {
			t.Errorf("%s: %d messages", name, len(all))
		}
		if read := reader.Stats().Standby - before; read < 10 {
			t.Errorf("%s: %d pages from the standby, want 15", name, read)
		}
	}
}

// standbyPageIsFull: messages stored after the ends of the stream were queried do not make a page
// shorter than the primary's.
func standbyPageIsFull(t *testing.T, p pgtest.Pair) {
	s := ensureWith(t, p.Pool, "full", stream.Options{})
	a := run(t, p.Pool, s, stream.AppenderConfig{})
	appendMany(t, a, "before", 50)
	exec(t, p.Pool, `SELECT tidewire.begin_history()`)
	appendMany(t, a, "after", 10)
	p.CatchUp(t)
	reader := readerOf(t, p.Pool, p.Standby.URL())
	with := s.WithStandby(reader)
	if page, err := with.ReadPage(t.Context(), 0, 10, 1<<20); err != nil || len(page) != 10 {
		t.Fatalf("%d messages, %v", len(page), err)
	}
	appendMany(t, a, "later", 100)
	p.CatchUp(t)
	if page, err := with.ReadPage(t.Context(), 0, 100, 1<<20); err != nil || len(page) != 100 {
		t.Errorf("%d messages, %v; want 100", len(page), err)
	}
}

// standbySameAnswers: after all kinds of events, and with any lag of the standby, a page is the same as
// the primary's.
func standbySameAnswers(t *testing.T, p pgtest.Pair) {
	rounds := 12
	if os.Getenv(testkit.LongVariable) != "" {
		rounds = 30
	}
	for seed := range pgtest.Seeds() {
		for name, opts := range storages {
			t.Run(fmt.Sprint(name, " ", seed), func(t *testing.T) {
				random := rand.New(rand.NewPCG(seed, 17))
				s := ensureWith(t, p.Pool, fmt.Sprint(name, " ", seed), opts)
				a := run(t, p.Pool, s, stream.AppenderConfig{})
				reader := readerOf(t, p.Pool, p.Standby.URL())
				replay, err := pgxpool.New(t.Context(), p.Standby.URL())
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(replay.Close)
				exec := func(pool *pgxpool.Pool, sql string) {
					t.Helper()
					if _, err := pool.Exec(t.Context(), sql); err != nil {
						t.Fatal(err)
					}
				}
				known := []int64{0}
				for range rounds {
					switch random.IntN(8) {
					case 0:
						exec(p.Pool, `SELECT tidewire.begin_history()`)
					case 1:
						exec(replay, `SELECT pg_wal_replay_pause()`)
					case 2, 3:
						exec(replay, `SELECT pg_wal_replay_resume()`)
						p.CatchUp(t)
					default:
						batch := make([]stream.Message, 1+random.IntN(40))
						for i := range batch {
							batch[i].Payload = make([]byte, random.IntN(2000))
						}
						first := mustAppend(t, a, batch...)
						known = append(known, first, first+int64(random.IntN(len(batch))), first+1000)
					}
					with := s.WithStandby(reader) // has no earlier state
					for range 10 {
						after, limit, bytes := known[random.IntN(len(known))], 1+random.IntN(50), 1+random.IntN(40_000)
						got, err := with.ReadPage(t.Context(), after, limit, bytes)
						want, wantErr := s.ReadPage(t.Context(), after, limit, bytes)
						both := min(len(got), len(want)) // a page may end where the next read uses another query
						if fmt.Sprint(err) != fmt.Sprint(wantErr) || (both == 0) != (max(len(got), len(want)) == 0) || !reflect.DeepEqual(got[:both], want[:both]) {
							t.Fatalf("after %d, limit %d, %d bytes: %d messages, %v; want %d, %v", after, limit, bytes, len(got), err, len(want), wantErr)
						}
					}
				}
				exec(replay, `SELECT pg_wal_replay_resume()`)
				if reader.Stats().Standby == 0 {
					t.Errorf("the standby was not read: %s", reader.Problem())
				}
			})
		}
	}
}

// standbyLags: messages that a standby lacks, because it receives nothing, hangs or was stopped, are
// read from the primary. When the standby is back, it is used again.
func standbyLags(t *testing.T, p pgtest.Pair) {
	s := ensureWith(t, p.Pool, "lags", stream.Options{})
	reader := readerOf(t, p.Pool, p.Standby.URL())
	hub, _ := runHub(t, p.Pool, stream.HubConfig{PageMessages: 50, TailBytes: 1, PageBytes: 1 << 20, Standby: reader})
	a := notified(t, p.Pool, s, hub)
	thaw := p.Freeze(t)
	last := appendMany(t, a, "a", 150)
	all := func() { catchUp(t, subscribe(t, hub, s, stream.After(0)), s, last) }
	all()
	if stats := reader.Stats(); stats.Standby > 0 || stats.Primary == 0 {
		t.Errorf("a standby without messages: %+v", stats)
	}
	thaw()
	p.CatchUp(t)
	awaitUse := func(what string) {
		t.Helper()
		before := reader.Stats().Standby
		testkit.Eventually(t, what+": the standby is read", func() bool { // one message: most polls read it from the primary
			_, err := s.WithStandby(reader).ReadPage(t.Context(), 0, 1, 1<<20)
			must(t, err)
			return reader.Stats().Standby > before
		})
		all()
	}
	awaitUse("it has received all")
	must(t, p.Standby.Freeze(t.Context()))
	ctx, cancel := context.WithTimeout(t.Context(), 1900*time.Millisecond) // which is shorter than the standby's timeout
	defer cancel()
	if page, err := s.WithStandby(reader).ReadPage(ctx, 0, 100, 1<<20); err != nil || len(page) != 100 {
		t.Errorf("it hangs: %d messages, %v", len(page), err)
	}
	all()
	if reader.Problem() != "it does not answer in time" {
		t.Errorf("it hangs: problem %q", reader.Problem())
	}
	must(t, p.Standby.Thaw(t.Context()))
	awaitUse("it goes on")
	must(t, p.Standby.Stop(t.Context()))
	all()
	if reader.Problem() != "it cannot be reached" {
		t.Errorf("it is stopped: problem %q", reader.Problem())
	}
}

// TestStandby_OtherCluster: a server of another cluster is not read.
func TestStandby_OtherCluster(t *testing.T) {
	t.Parallel()
	notShort(t)
	db := setup(t)
	server := pgtest.StartOther(t)
	for what, pool := range map[string]*pgxpool.Pool{"ours": db.Pool, "theirs": pools(t, server.URL(), 1)[0]} {
		appendMany(t, run(t, pool, ensureOn(t, pool, "s"), stream.AppenderConfig{}), what, 500)
	}
	reader := readerOf(t, db.Pool, server.URL())
	for i, m := range readPages(t, lookUp(t, db.Pool, "s").WithStandby(reader), 100) {
		if want := fmt.Sprint("ours ", i); string(m.Payload) != want {
			t.Fatalf("%s, want %s", m.Payload, want)
		}
	}
	if stats := reader.Stats(); stats.Standby > 0 || stats.Used || reader.Problem() != "it belongs to another PostgreSQL cluster than the primary" {
		t.Errorf("%+v, problem %q", stats, reader.Problem())
	}
}

// readerOf returns a Reader of a standby, for reads of the pool.
func readerOf(t *testing.T, pool *pgxpool.Pool, url string) *standby.Reader {
	t.Helper()
	r, err := standby.Open(t.Context(), pool, standby.Config{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

// appendMany appends n messages in batches, and returns the position of the last.
func appendMany(t *testing.T, a *stream.Appender, what string, n int) (last int64) {
	t.Helper()
	for from := 0; from < n; from += 500 {
		batch := make([]stream.Message, min(500, n-from))
		for i := range batch {
			batch[i].Payload = fmt.Appendf(nil, "%s %d", what, from+i)
		}
		last = mustAppend(t, a, batch...) + int64(len(batch)) - 1
	}
	return last
}

// catchUp reads with the subscription up to that position, and wants the messages of the primary.
func catchUp(t *testing.T, sub *stream.Subscription, s *stream.Stream, last int64) {
	t.Helper()
	var got []stream.Message
	after := sub.Position()
	for sub.Position() < last {
		got = append(got, next(t, sub)...)
	}
	want, err := s.Read(t.Context(), after, len(got)+1)
	if err != nil || len(want) != len(got) {
		t.Fatalf("%d messages, want %d: %v", len(got), len(want), err)
	}
	for i := range want {
		if got[i].Position != want[i].Position || string(got[i].Payload) != string(want[i].Payload) {
			t.Fatalf("message %d is %d %s, want %d %s", i, got[i].Position, got[i].Payload, want[i].Position, want[i].Payload)
		}
	}
}

// readPages reads page after page to the end.
func readPages(t *testing.T, s *stream.Stream, limit int) (all []stream.Message) {
	t.Helper()
	for after := int64(0); ; after = all[len(all)-1].Position {
		page, err := s.ReadPage(t.Context(), after, limit, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		if len(page) == 0 {
			return all
		}
		all = append(all, page...)
	}
}

// openMigrated migrates a database and opens a pool on it that detects cancelled waits for standbys.
func openMigrated(ctx context.Context, url string) (*pgxpool.Pool, error) {
	pool, err := pg.Open(ctx, pg.PoolConfig{URL: url})
	if err == nil {
		_, err = migrate.Up(ctx, pool)
	}
	return pool, err
}
