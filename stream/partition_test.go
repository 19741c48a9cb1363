package stream_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/internal/testkit"
	"github.com/tidewire/tidewire/stream"
)

// ensureParted returns a keyed stream with n partitions on a migrated database.
func ensureParted(t *testing.T, n int) (pgtest.DB, *stream.Stream) {
	t.Helper()
	db := setup(t)
	return db, ensureWith(t, db.Pool, "parted", stream.Options{Keyed: true, Partitions: n})
}

// runParted starts a PartitionedAppender, which is stopped when the test ends.
func runParted(t *testing.T, pool *pgxpool.Pool, s *stream.Stream, cfg stream.PartitionedConfig) *stream.PartitionedAppender {
	t.Helper()
	a := stream.NewPartitionedAppender(pool, s, cfg)
	a.Start()
	t.Cleanup(a.Stop)
	return a
}

func relations(t *testing.T, db pgtest.DB) (n int) {
	t.Helper()
	err := db.Pool.QueryRow(t.Context(), `
SELECT (SELECT count(*) FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = relnamespace
	WHERE nspname = 'tidewire' AND relname ~ '^(stream|request)_[0-9]+_')
	+ (SELECT count(*) FROM tidewire.stream) + (SELECT count(*) FROM tidewire.segment)`).Scan(&n)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestPartitions_AreOneThing(t *testing.T) {
	t.Parallel()
	db, s := ensureParted(t, 3)
	again, err := stream.Ensure(t.Context(), db.Pool, "parted", stream.Options{Keyed: true, Partitions: 3})
	if err != nil || again.ID() != s.ID() || again.Partition(2).ID() != s.Partition(2).ID() {
		t.Errorf("Ensure again: %v", err)
	}
	found, err := stream.Lookup(t.Context(), db.Pool, "parted")
	if err != nil || found.Partitions() != 3 || found.Partition(1).Name() != "parted/1" || !found.Keyed() {
		t.Fatalf("Lookup: %+v, %v", found, err)
	}
	for _, opts := range []stream.Options{{Keyed: true}, {Keyed: true, Partitions: 4}, {Partitions: 3}} {
		if _, err := stream.Ensure(t.Context(), db.Pool, "parted", opts); !errors.Is(err, stream.ErrExists) {
			t.Errorf("Ensure with %+v: %v, want ErrOptions", opts, err)
		}
	}
	if _, err := stream.Ensure(t.Context(), db.Pool, "plain/with/slashes/7", stream.Options{}); err != nil {
		t.Error(err)
	}
	all, err := stream.LookupEvery(t.Context(), db.Pool)
	if err != nil || len(all) != 2 || all[0].Name() != "parted" || all[0].Partitions() != 3 || all[0].Partition(0).Name() != "parted/0" {
		t.Errorf("List: %v, %v", all, err)
	}
	part, err := stream.Lookup(t.Context(), db.Pool, "parted/1")
	if err != nil || part.ID() != s.Partition(1).ID() {
		t.Errorf("Lookup of a partition: %v", err)
	}
	if err := stream.Drop(t.Context(), db.Pool, "parted/1"); !errors.Is(err, stream.ErrPartition) {
		t.Errorf("Drop of a partition: %v, want ErrPartition", err)
	}
	if err := part.SetRetention(t.Context(), stream.Retention{Consumed: true}); !errors.Is(err, stream.ErrPartition) {
		t.Errorf("Alter of a partition: %v, want ErrPartition", err)
	}
}

func TestPartitions_Names(t *testing.T) {
	t.Parallel()
	db := setup(t)
	if _, err := stream.Ensure(t.Context(), db.Pool, "taken/1", stream.Options{}); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Ensure(t.Context(), db.Pool, "taken", stream.Options{Partitions: 2}); !errors.Is(err, stream.ErrExists) {
		t.Errorf("a name that a partition needs: %v, want ErrOptions", err)
	}
	if _, err := stream.Ensure(t.Context(), db.Pool, "taken", stream.Options{Partitions: 1}); err != nil {
		t.Errorf("a name that no partition needs: %v", err)
	}
	for name, n := range map[string]int{"n": -1, "m": 1025, strings.Repeat("l", 124): 1} {
		if _, err := stream.Ensure(t.Context(), db.Pool, name, stream.Options{Partitions: n}); !errors.Is(err, stream.ErrInvalid) {
			t.Errorf("%d partitions of %s: %v, want ErrInvalid", n, name, err)
		}
	}
	if _, err := stream.Ensure(t.Context(), db.Pool, strings.Repeat("l", 123), stream.Options{Partitions: 1}); err != nil {
		t.Error(err)
	}
}

// TestPartitions_Most creates and drops many partitions; MaxPartitions in a long
// run.
func TestPartitions_Most(t *testing.T) {
	t.Parallel()
	for name, most := range map[string]int{"some": 24, "most": stream.MaxPartitions} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if most > 100 {
				testkit.Long(t)
			}
			db := setup(t)
			before := relations(t, db)
			s := ensureWith(t, db.Pool, "most", stream.Options{Keyed: true, Partitions: most, OwnTables: true})
			a := runParted(t, pools(t, db.URL, 1)[0], s, stream.PartitionedConfig{})
			var calling sync.WaitGroup
			for range s.Partitions() {
				calling.Go(func() {
					if _, err := a.Append(t.Context(), stream.Message{}); err != nil {
						t.Error(err)
					}
				})
			}
			calling.Wait()
			if info := inspect(t, s); info.Head != int64(most) || info.Segments != most {
				t.Errorf("Info: %+v", info)
			}
			must(t, stream.Drop(t.Context(), db.Pool, "most"))
			if after := relations(t, db); after != before {
				t.Errorf("%d relations and rows are left", after-before)
			}
		})
	}
}

// TestPartitions_GoOnWhereOthersFailed leaves a stream half created, and half
// dropped: Lookup does not find it, and Ensure completes it.
func TestPartitions_GoOnWhereOthersFailed(t *testing.T) {
	t.Parallel()
	db := setup(t)
	exec(t, db.Pool, `SELECT tidewire.ensure_partitioned('half', false, 4)`)
	exec(t, db.Pool, `SELECT tidewire.make_partitions(id, 2) FROM tidewire.stream WHERE name = 'half'`)
	if _, err := stream.Lookup(t.Context(), db.Pool, "half"); !errors.Is(err, stream.ErrNotFound) {
		t.Errorf("Lookup of half a stream: %v, want ErrNotFound", err)
	}
	s := ensureWith(t, db.Pool, "half", stream.Options{Partitions: 4})
	if _, err := runParted(t, db.Pool, s, stream.PartitionedConfig{}).AppendAs(t.Context(), stream.RequestID{Client: "p"}, stream.Message{}); err != nil {
		t.Fatal(err)
	}
	exec(t, db.Pool, `SELECT tidewire.begin_drop('half')`)
	exec(t, db.Pool, `SELECT tidewire.drop_partition(id) FROM tidewire.stream WHERE name = 'half'`)
	if _, err := stream.Lookup(t.Context(), db.Pool, "half"); !errors.Is(err, stream.ErrNotFound) {
		t.Errorf("Lookup of a stream that is being dropped: %v, want ErrNotFound", err)
	}
	s = ensureWith(t, db.Pool, "half", stream.Options{Partitions: 4})
	if info, err := s.Info(t.Context()); err != nil || info.Head != 0 {
		t.Errorf("a new stream: %+v, %v", info, err)
	}
	must(t, stream.Drop(t.Context(), db.Pool, "half"))
	if n := relations(t, db); n != 0 {
		t.Errorf("%d relations and rows are left", n)
	}
}

func TestPartitions_WholeIsNoLog(t *testing.T) {
	t.Parallel()
	db, s := ensureParted(t, 2)
	h, _ := runHub(t, db.Pool, stream.HubConfig{})
	gs, _ := runGroups(t, db.Pool, stream.GroupsConfig{})
	for what, call := range map[string]func() error{
		"Read":   func() error { _, err := s.Read(t.Context(), 0, 1); return err },
		"Head":   func() error { _, err := s.Head(t.Context()); return err },
		"Oldest": func() error { _, err := s.Oldest(t.Context()); return err },
		"Subscribe": func() error {
			_, err := h.Subscribe(t.Context(), s, stream.After(0))
			return err
		},
		"Open": func() error { _, err := gs.Open(t.Context(), s, "g", stream.GroupOptions{}); return err },
		"Append": func() error {
			_, err := run(t, db.Pool, s, stream.AppenderConfig{}).Append(t.Context(), stream.Message{})
			return err
		},
	} {
		if err := call(); !errors.Is(err, stream.ErrPartitioned) {
			t.Errorf("%s: %v, want ErrPartitioned", what, err)
		}
	}
}

func TestPartitions_GroupsAreSummed(t *testing.T) {
	t.Parallel()
	db, s := ensureParted(t, 2)
	gs, _ := runGroups(t, db.Pool, stream.GroupsConfig{})
	for i := range 2 {
		mustAppend(t, run(t, db.Pool, s.Partition(i), stream.AppenderConfig{}), messages("a", "b", "c")...)
		g := openGroup(t, gs, s.Partition(i), "g")
		mustCommit(t, g, int64(i+1))
	}
	all, err := s.Groups(t.Context())
	if err != nil || len(all) != 1 || all[0].Name != "g" || all[0].Offset != 3 || all[0].Lag != 3 {
		t.Errorf("Stream.Groups: %+v, %v", all, err)
	}
	if err := s.DropGroup(t.Context(), "g"); err != nil {
		t.Error(err)
	}
	if err := s.DropGroup(t.Context(), "g"); !errors.Is(err, stream.ErrNotFound) {
		t.Errorf("DropGroup again: %v, want ErrNotFound", err)
	}
}

func TestPartitionedAppender_Routes(t *testing.T) {
	t.Parallel()
	db, s := ensureParted(t, 4)
	var committed sync.Map
	a := runParted(t, db.Pool, s, stream.PartitionedConfig{OnCommit: func(p int, last int64) { committed.Store(p, last) }})
	keyed := func(key string) stream.Message { return stream.Message{Key: key, Payload: []byte(key)} }
	one, other := "a", "a"
	for n := 0; s.PartitionOf(other) == s.PartitionOf(one); n++ {
		other = fmt.Sprint(n)
	}
	at, err := a.Append(t.Context(), stream.Message{}, keyed(one), keyed(one))
	if want := (stream.Appended{Partition: s.PartitionOf(one), First: 1, Last: 3}); err != nil || at != want {
		t.Errorf("by key: %v, %v, want %v", at, err, want)
	}
	if _, err := a.Append(t.Context(), keyed(one), keyed(other)); !errors.Is(err, stream.ErrCrossPartition) {
		t.Errorf("keys of two partitions: %v, want ErrManyPartitions", err)
	}
	client := stream.RequestID{Client: "client", Sequence: 1}
	for n := range 2 {
		at, err := a.AppendAs(t.Context(), client, messages("p")...)
		if want := (stream.Appended{Partition: s.PartitionOf(client.Client), First: at.First, Last: at.First, Duplicate: n > 0}); err != nil || at != want {
			t.Errorf("by client: %+v, %v, want %+v", at, err, want)
		}
		wantAt(t, s.Partition(at.Partition), at.First, "p")
	}
	stored, err := a.AppendAs(t.Context(), stream.RequestID{Client: "client", Sequence: 2}, keyed(other))
	if err != nil || stored.Partition != s.PartitionOf(other) {
		t.Errorf("by key before the client: %v, %v", stored, err)
	}
	turns := make(map[int]int)
	for range 8 {
		at, err := a.Append(t.Context(), stream.Message{})
		if err != nil {
			t.Fatal(err)
		}
		turns[at.Partition]++
	}
	if fmt.Sprint(turns) != "map[0:2 1:2 2:2 3:2]" {
		t.Errorf("spread %v", turns)
	}
	testkit.Eventually(t, "OnCommit of all partitions", func() bool {
		n := 0
		committed.Range(func(any, any) bool { n++; return true })
		return n == 4
	})
	history, err := s.ReadKey(t.Context(), one, 0, 100, 10)
	if got := payloads(t, history, err); len(got) != 2 {
		t.Errorf("history of a key: %v", got)
	}
}

// TestPublish_ToPartitions: messages with a key go to the same partition as in Go,
// those without a key in a transaction go together.
func TestPublish_ToPartitions(t *testing.T) {
	t.Parallel()
	db, s := ensureParted(t, 5)
	for n := range 4 {
		tx := begin(t, db.Pool, pgx.ReadCommitted)
		for k := range 10 {
			exec(t, tx, `SELECT tidewire.publish('parted', $1, NULL, 'sql')`, fmt.Sprint(n, "-", k))
			exec(t, tx, `SELECT tidewire.publish('parted', NULL, NULL, $1)`, fmt.Appendf(nil, "%d keyless", n))
		}
		must(t, s.AppendTx(t.Context(), tx, stream.Message{Key: "go 1"}, stream.Message{Key: "go 2"}, stream.Message{}))
		commitTx(t, tx)
	}
	stored, keyless := 0, make(map[string]int)
	for i := range s.Partitions() {
		for _, m := range everything(t, s.Partition(i)) {
			stored++
			if m.Key != "" && s.PartitionOf(m.Key) != i {
				t.Errorf("key %q is in %d, not %d", m.Key, i, s.PartitionOf(m.Key))
			}
			if m.Key == "" && len(m.Payload) > 0 {
				if before, found := keyless[string(m.Payload)]; found && before != i {
					t.Errorf("%s is in %d and %d", m.Payload, before, i)
				}
				keyless[string(m.Payload)] = i
			}
		}
	}
	if stored != 4*23 || len(keyless) != 4 {
		t.Errorf("%d messages stored, %v without key", stored, keyless)
	}
}
