package stream_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/tidewire/tidewire/internal/testkit"
	"github.com/tidewire/tidewire/stream"
)

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

// TestPartitionedAppender_FewConnections has more partitions busy than the pool
// has connections.
func TestPartitionedAppender_FewConnections(t *testing.T) {
	t.Parallel()
	db, s := ensureParted(t, 20)
	a := runParted(t, smallPool(t, db, 3), s, stream.PartitionedConfig{})
	var calling sync.WaitGroup
	for c := range 40 {
		calling.Go(func() {
			for i := range int64(10) {
				if _, err := a.AppendAs(t.Context(), stream.RequestID{Client: fmt.Sprint(c), Sequence: i}, messages("x")...); err != nil {
					t.Error(err)
				}
			}
		})
	}
	calling.Wait()
	stored := 0
	for i := range s.Partitions() {
		stored += len(everything(t, s.Partition(i)))
	}
	if stored != 400 {
		t.Errorf("%d messages stored, want 400", stored)
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
		if err := s.AppendTx(t.Context(), tx, stream.Message{Key: "go 1"}, stream.Message{Key: "go 2"}, stream.Message{}); err != nil {
			t.Fatal(err)
		}
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
