package stream_test

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/tidewire/tidewire/stream"
)

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
