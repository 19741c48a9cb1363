package stream_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/embedpg"
	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/standby"
	"github.com/tidewire/tidewire/stream"
)

// readerOf returns a Reader of the server as a standby, for reads of the pool.
func readerOf(t *testing.T, pool *pgxpool.Pool, server *embedpg.Server) *standby.Reader {
	t.Helper()
	r, err := standby.Open(t.Context(), pool, standby.Config{URL: server.URL()})
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

// TestStandby_CatchUp: a subscription far from the end, and pages, are read from the standby, and the end from the primary.
func TestStandby_CatchUp(t *testing.T) {
	t.Parallel()
	p := pgtest.StartPair(t, openMigrated)
	for name, opts := range storages {
		s := ensureWith(t, p.Pool, name, opts)
		reader := readerOf(t, p.Pool, p.Standby)
		hub, _ := runHub(t, p.Pool, stream.HubConfig{PageMessages: 100, Standby: reader})
		a := notified(t, p.Pool, s, hub)
		last := appendMany(t, a, name, 3000)
		p.CatchUp(t)
		sub := subscribe(t, hub, s, stream.After(0))
		catchUp(t, sub, s, last)
		if stats := reader.Stats(); stats.Standby < 20 || !stats.Used {
			t.Errorf("%s: of a subscription: %+v, want 29 pages from the standby", name, stats)
		}
		for i := range 20 { // the end, which the standby may not have yet, is not read from it
			catchUp(t, sub, s, appendMany(t, a, fmt.Sprint("live ", i), 3))
		}
		before := reader.Stats().Standby
		p.CatchUp(t)
		if all := readPages(t, s.WithStandby(reader), 100); len(all) != 3060 || string(all[3059].Payload) != "live 19 2" {
			t.Errorf("%s: %d messages", name, len(all))
		}
		if read := reader.Stats().Standby - before; read < 20 {
			t.Errorf("%s: %d pages from the standby, want 30", name, read)
		}
	}
}

// TestStandby_Lags: messages that a standby lacks, because it receives nothing, hangs or was stopped, are
// read from the primary. When the standby is back, it is used again.
func TestStandby_Lags(t *testing.T) {
	t.Parallel()
	p := pgtest.StartPair(t, openMigrated)
	p.Unsynchronised(t)
	s := ensureWith(t, p.Pool, "s", stream.Options{})
	reader := readerOf(t, p.Pool, p.Standby)
	hub, _ := runHub(t, p.Pool, stream.HubConfig{PageMessages: 100, TailBytes: 1, PageBytes: 1 << 20, Standby: reader})
	a := notified(t, p.Pool, s, hub)
	thaw := p.Freeze(t)
	last := appendMany(t, a, "a", 1000)
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
		for deadline := time.Now().Add(2 * time.Minute); reader.Stats().Standby == before; all() {
			if time.Now().After(deadline) {
				t.Fatalf("%s: the standby is not read: %s", what, reader.Problem())
			}
		}
	}
	awaitUse("it has received all")
	if err := p.Standby.Freeze(t.Context()); err != nil {
		t.Fatal(err)
	}
	all()
	if reader.Problem() != "it does not answer in time" {
		t.Errorf("it hangs: problem %q", reader.Problem())
	}
	if err := p.Standby.Thaw(t.Context()); err != nil {
		t.Fatal(err)
	}
	awaitUse("it goes on")
	if err := p.Standby.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	all()
	if reader.Problem() != "it cannot be reached" {
		t.Errorf("it is stopped: problem %q", reader.Problem())
	}
}

// TestStandby_OfFormerPrimary: the standby follows a former primary, and has messages that the new one never
// got. No reader gets them.
func TestStandby_OfFormerPrimary(t *testing.T) {
	t.Parallel()
	for name, opts := range storages {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := pgtest.StartPair(t, openMigrated)
			p.Unsynchronised(t)
			s := ensureWith(t, p.Pool, "s", opts)
			a := run(t, p.Pool, s, stream.AppenderConfig{})
			kept := appendMany(t, a, "kept", 1000)
			p.CatchUp(t)
			p.Detach(t)
			other := pgtest.Pair{Primary: p.Primary, Standby: pgtest.Standby(t, p.Primary), Pool: p.Pool}
			appendMany(t, a, "lost", 1000)
			other.CatchUp(t)
			pool, err := pgxpool.New(t.Context(), p.Standby.URL())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(pool.Close)
			exec(t, pool, `SELECT pg_promote()`)
			s, err = stream.Lookup(t.Context(), pool, "s")
			if err != nil {
				t.Fatal(err)
			}
			reader := readerOf(t, pool, other.Standby)
			if all := readPages(t, s.WithStandby(reader), 100); len(all) != 1000 || reader.Stats().Standby == 0 {
				t.Errorf("before a new history begins: %d messages; %+v", len(all), reader.Stats())
			}
			hub, _ := runHub(t, pool, stream.HubConfig{PageMessages: 100, Standby: reader})
			sub := subscribe(t, hub, s, stream.After(0))
			catchUp(t, sub, s, kept)
			b := notified(t, pool, s, hub)
			last := appendMany(t, b, "new", 1000)
			catchUp(t, sub, s, last)
			if all := readPages(t, s.WithStandby(reader), 100); len(all) != 2000 || string(all[1000].Payload) != "new 0" {
				t.Errorf("%d messages", len(all))
			}
			if reader.Problem() != "its history is older than that of the primary" {
				t.Errorf("problem %q", reader.Problem())
			}
		})
	}
}

// TestStandby_OtherCluster: a server of another cluster is not read.
func TestStandby_OtherCluster(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t)
	pool, err := openMigrated(t.Context(), server.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	other := pgtest.StartOther(t)
	otherPool, err := openMigrated(t.Context(), other.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(otherPool.Close)
	for _, of := range []*pgxpool.Pool{otherPool, pool} {
		s := ensureWith(t, of, "s", stream.Options{})
		appendMany(t, run(t, of, s, stream.AppenderConfig{}), "of "+of.Config().ConnConfig.Host, 500)
	}
	s := lookUp(t, pool, "s")
	reader := readerOf(t, pool, other)
	for _, m := range readPages(t, s.WithStandby(reader), 100)[:1] {
		if want := "of " + pool.Config().ConnConfig.Host + " 0"; string(m.Payload) != want {
			t.Errorf("%s, want %s", m.Payload, want)
		}
	}
	if stats := reader.Stats(); stats.Standby > 0 || stats.Used || reader.Problem() != "it belongs to another PostgreSQL cluster than the primary" {
		t.Errorf("%+v, problem %q", stats, reader.Problem())
	}
}

// TestStandby_SameAnswers: after all kinds of events, and with any lag of the standby, a page is the same as
// the primary's.
func TestStandby_SameAnswers(t *testing.T) {
	t.Parallel()
	for seed := range pgtest.Seeds() {
		for name, opts := range storages {
			t.Run(fmt.Sprint(name, " ", seed), func(t *testing.T) {
				t.Parallel()
				random := rand.New(rand.NewPCG(seed, 17))
				p := pgtest.StartPair(t, openMigrated)
				p.Unsynchronised(t)
				s := ensureWith(t, p.Pool, "s", opts)
				a := run(t, p.Pool, s, stream.AppenderConfig{})
				reader := readerOf(t, p.Pool, p.Standby)
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
				for range 60 {
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
				if reader.Stats().Standby == 0 {
					t.Errorf("the standby was not read: %s", reader.Problem())
				}
			})
		}
	}
}
