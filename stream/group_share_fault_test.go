package stream_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/testkit"
	"github.com/tidewire/tidewire/stream"
)

// deadConn is a connection whose peer silently disappears once dead is set.
type deadConn struct {
	net.Conn
	dead *atomic.Bool
}

func (c deadConn) Write(p []byte) (int, error) {
	if c.dead.Load() {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

// TestCoordinator_DeadConnection: a heartbeat that gets no answer is tried again on
// another connection, long before the lease ends.
func TestCoordinator_DeadConnection(t *testing.T) {
	t.Parallel()
	db := setup(t)
	cfg, err := pgxpool.ParseConfig(db.URL)
	if err != nil {
		t.Fatal(err)
	}
	var dead, later atomic.Bool // the existing connections are dead; new ones work
	dial := cfg.ConnConfig.DialFunc
	cfg.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil || later.Load() {
			return conn, err
		}
		t.Cleanup(func() { conn.Close() }) // otherwise pgx waits to send its Terminate message
		return deadConn{conn, &dead}, nil
	}
	cfg.MaxConns = 4 // a connection that ends without an answer keeps its slot for a while
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	own := func(ctx context.Context, o *stream.Assignment) {
		select {
		case <-o.Revoked():
		case <-ctx.Done():
			t.Error("the lease was lost with the connection")
		}
	}
	joinShare(t, pool, stream.CoordinatorConfig{Name: "things", Numbers: 3, Own: own, Lease: 10 * time.Second, Heartbeat: 40 * time.Millisecond})
	awaitShares(t, db, "things", "[3]")
	later.Store(true)
	dead.Store(true)
	lasts := func() (at time.Time) {
		if err := db.Pool.QueryRow(t.Context(), `SELECT until FROM tidewire.share_member`).Scan(&at); err != nil {
			t.Fatal(err)
		}
		return at
	}
	until := lasts()
	testkit.Eventually(t, "a heartbeat on another connection", func() bool { return lasts().After(until.Add(time.Second)) })
}

// TestCoordinator_RenewedIsNotDead: a lock on the row of an expired member means
// that it is renewing its lease; that delays no one.
func TestCoordinator_RenewedIsNotDead(t *testing.T) {
	t.Parallel()
	db := setup(t)
	exec(t, db.Pool, `SELECT tidewire.join_share('things', NULL, 4, 'slow', interval '0')`)
	tx := begin(t, db.Pool, "read committed")
	exec(t, tx, `SELECT FROM tidewire.share_member FOR UPDATE`)
	joinShare(t, db.Pool, stream.CoordinatorConfig{Name: "things", Numbers: 4, Own: newOwners(t, 4).own, Heartbeat: 40 * time.Millisecond})
	awaitShares(t, db, "things", "[2 0]")
	rollBack(t, tx)
	awaitShares(t, db, "things", "[4]")
}

// TestCoordinator_NothingDueTakesNoLock: as with most heartbeats.
func TestCoordinator_NothingDueTakesNoLock(t *testing.T) {
	t.Parallel()
	db := setup(t)
	var share, member int64
	err := db.Pool.QueryRow(t.Context(), `SELECT share_id, member_id FROM tidewire.join_share('things', NULL, 4, 'm', interval '1 hour')`).Scan(&share, &member)
	if err != nil {
		t.Fatal(err)
	}
	beat := func() (quota *int, numbers []int32) {
		t.Helper()
		err := db.Pool.QueryRow(t.Context(), `SELECT quota, numbers FROM tidewire.beat_share($1, $2, interval '1 hour', NULL, false)`, share, member).Scan(&quota, &numbers)
		if err != nil {
			t.Fatal(err)
		}
		return quota, numbers
	}
	beat()
	tx := begin(t, db.Pool, "read committed")
	exec(t, tx, `SELECT tidewire.hold_share($1, true)`, share)
	if quota, numbers := beat(); quota == nil || *quota != 4 || len(numbers) != 4 {
		t.Errorf("quota %v, numbers %v, want 4 of them", quota, numbers)
	}
	exec(t, db.Pool, `INSERT INTO tidewire.share_member (share, name, until) VALUES ($1, 'dead', '-infinity')`, share)
	if quota, _ := beat(); quota != nil {
		t.Errorf("quota %d beside one whose time is up, want to wait for the lock", *quota)
	}
}
