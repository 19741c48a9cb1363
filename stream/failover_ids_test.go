package stream_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/stream"
)

// TestFailover_IDs: objects created after a failover never get the IDs of lost ones, however many were lost:
// so the holder of a lost object cannot change a new one.
func TestFailover_IDs(t *testing.T) {
	t.Parallel()
	p := pgtest.StartPair(t, openMigrated)
	p.Unsynchronised(t)
	pool := bothOf(t, p)
	orders := lookUpWith(t, p.Pool, pool, "orders", stream.Options{})
	kept := appendEach(t, run(t, pool, orders, stream.AppenderConfig{}), "kept", 20)
	groups, _ := runGroups(t, pool, stream.GroupsConfig{})
	owned := openGroup(t, groups, orders, "owned")
	p.CatchUp(t)
	p.Detach(t)

	ids := make(map[int32]string)
	lost := lookUpWith(t, p.Pool, pool, "lost", stream.Options{})
	ids[lost.ID()] = "stream lost"
	for i := range 40 { // more than PostgreSQL writes to its log at a time
		s := lookUpWith(t, p.Pool, p.Pool, fmt.Sprint("lost ", i), stream.Options{})
		ids[s.ID()] = s.Name()
	}
	lostGroup := openGroup(t, groups, orders, "lost")
	groupIDs := map[int32]bool{lostGroup.ID(): true}
	for i := range 40 {
		groupIDs[openGroup(t, groups, orders, fmt.Sprint("lost ", i)).ID()] = true
	}
	a := run(t, pool, lost, stream.AppenderConfig{})
	mustAppend(t, a, messages("lost")...)
	token := ownOne(t, p.Pool)

	after := p.Promote(t)
	others, _ := runGroups(t, after, stream.GroupsConfig{})
	for i := range 10 {
		s := lookUpWith(t, after, after, fmt.Sprint("after ", i), stream.Options{})
		if name, twice := ids[s.ID()]; twice {
			t.Errorf("%s has the id of %s", s.Name(), name)
		}
		if g := openGroup(t, others, orders, fmt.Sprint("after ", i)); groupIDs[g.ID()] {
			t.Errorf("group %s has the id of one that is lost", g.Name())
		}
	}
	if _, err := a.Append(t.Context(), messages("to what is lost")...); !errors.Is(err, stream.ErrNotFound) {
		t.Errorf("an append to a lost stream: %v", err)
	}
	if _, err := lostGroup.Commit(t.Context(), kept[19]); !errors.Is(err, stream.ErrNotFound) {
		t.Errorf("a commit for a lost group: %v", err)
	}
	if second := ownOne(t, after); second == token {
		t.Errorf("token %d names two ownerships", token)
	}
	if _, err := owned.CommitOwned(t.Context(), token, kept[19]); !errors.Is(err, stream.ErrNotOwner) {
		t.Errorf("a commit with the token of a lost ownership: %v", err)
	}
}

// ownOne returns the token of an owner on the pool, which owns a number until the test ends.
func ownOne(t *testing.T, pool *pgxpool.Pool) (token int64) {
	t.Helper()
	owned := make(chan int64, 1)
	c, err := stream.NewCoordinator(pool, stream.CoordinatorConfig{
		Name: "things", Numbers: 1, Lease: 20 * time.Second,
		Own: func(ctx context.Context, o *stream.Assignment) {
			select {
			case owned <- o.Token:
			default:
			}
			select {
			case <-ctx.Done():
			case <-o.Revoked():
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); c.Run(ctx) }() // its error only says that the server is gone
	t.Cleanup(func() { stop(); <-ended })
	select {
	case token = <-owned:
	case <-time.After(time.Minute):
		t.Fatal("nothing is owned")
	}
	return token
}
