package stream_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/internal/testkit"
	"github.com/tidewire/tidewire/stream"
)

// owners checks that each number has one owner at a time, and that its tokens
// increase.
type owners struct {
	t      *testing.T
	now    []atomic.Int64 // the token of the owner
	latest []atomic.Int64
}

func newOwners(t *testing.T, n int) *owners {
	return &owners{t: t, now: make([]atomic.Int64, n), latest: make([]atomic.Int64, n)}
}

// own is a CoordinatorConfig.Own that holds the number until it is revoked.
func (w *owners) own(ctx context.Context, o *stream.Assignment) {
	if other := w.now[o.Number].Swap(o.Token); other != 0 {
		w.t.Errorf("%d has the owners %d and %d", o.Number, other, o.Token)
	}
	if before := w.latest[o.Number].Swap(o.Token); before >= o.Token {
		w.t.Errorf("%d: ownership %d after %d", o.Number, o.Token, before)
	}
	select {
	case <-o.Revoked():
	case <-ctx.Done():
		if !errors.Is(context.Cause(ctx), stream.ErrNotOwner) || o.Valid() {
			w.t.Errorf("lost because of %v, lasts %t", context.Cause(ctx), o.Valid())
		}
	}
	w.now[o.Number].Store(0)
}

// joinShare runs a member until stop is called, or the test ends.
func joinShare(t *testing.T, pool *pgxpool.Pool, cfg stream.CoordinatorConfig) (stop func()) {
	t.Helper()
	s, err := stream.NewCoordinator(pool, cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := s.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	stop = func() { cancel(); running.Wait() }
	t.Cleanup(stop)
	return stop
}

// shares counts what the members of the share own, largest first; free numbers
// are not counted.
func shares(t *testing.T, db pgtest.DB, name string) string {
	t.Helper()
	var all []int32
	err := db.Pool.QueryRow(t.Context(), `
SELECT ARRAY(SELECT count(n.number)::int FROM tidewire.share AS s JOIN tidewire.share_member AS m ON m.share = s.id
LEFT JOIN tidewire.share_number AS n ON n.owner = m.id WHERE s.name = $1 GROUP BY m.id ORDER BY 1 DESC)`, name).Scan(&all)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(all)
}

func awaitShares(t *testing.T, db pgtest.DB, name, want string) {
	t.Helper()
	testkit.Eventually(t, "shares of "+want, func() bool { return shares(t, db, name) == want })
}

// endLeases ends the leases of members whose number modulo n is rest, as another
// member does after their expiry, without the knowledge of these members.
func endLeases(t *testing.T, db pgtest.DB, rest, n int) {
	t.Helper()
	tx := begin(t, db.Pool, "read committed")
	exec(t, tx, `SELECT tidewire.hold_share(id, true) FROM tidewire.share`)
	exec(t, tx, `UPDATE tidewire.share_member SET until = '-infinity' WHERE id % $2 = $1`, rest, n)
	exec(t, tx, `SELECT tidewire.end_leases(id, NULL) FROM tidewire.share`)
	commitTx(t, tx)
}

func TestCoordinator_MembersComeAndGo(t *testing.T) {
	t.Parallel()
	db := setup(t)
	w := newOwners(t, 3)
	cfg := stream.CoordinatorConfig{Name: "things", Numbers: 3, Own: w.own, Heartbeat: 40 * time.Millisecond}
	var stops []func()
	for _, want := range []string{"[3]", "[2 1]", "[1 1 1]", "[1 1 1 0]"} {
		stops = append(stops, joinShare(t, db.Pool, cfg))
		awaitShares(t, db, "things", want)
	}
	for i, want := range []string{"[1 1 1]", "[2 1]", "[3]", "[]"} {
		stops[i]()
		awaitShares(t, db, "things", want)
	}
	if left := value[int](t, db.Pool, `SELECT (SELECT count(*) FROM tidewire.share) + (SELECT count(*) FROM tidewire.share_number)`); left != 0 {
		t.Errorf("%d rows are left", left)
	}
}

// TestCoordinator_AnotherNumber: members have to use the same Numbers; it can
// change when all have left.
func TestCoordinator_AnotherNumber(t *testing.T) {
	t.Parallel()
	db := setup(t)
	w := newOwners(t, 9)
	cfg := stream.CoordinatorConfig{Name: "things", Numbers: 4, Own: w.own, Heartbeat: 40 * time.Millisecond}
	joinShare(t, db.Pool, cfg)
	awaitShares(t, db, "things", "[4]")
	cfg.Numbers = 9
	other, err := stream.NewCoordinator(db.Pool, cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Run(t.Context()); !errors.Is(err, stream.ErrExists) {
		t.Errorf("Run with another number: %v, want ErrOptions", err)
	}
	exec(t, db.Pool, `INSERT INTO tidewire.share (name) VALUES ('old')`)
	exec(t, db.Pool, `INSERT INTO tidewire.share_number (share, number) SELECT id, 0 FROM tidewire.share WHERE name = 'old'`)
	exec(t, db.Pool, `INSERT INTO tidewire.share_member (share, name, until) SELECT id, 'dead', now() FROM tidewire.share WHERE name = 'old'`)
	cfg.Name = "old"
	cfg.Own = newOwners(t, 9).own
	joinShare(t, db.Pool, cfg)
	awaitShares(t, db, "old", "[9]")
}

func TestCoordinator_Invalid(t *testing.T) {
	t.Parallel()
	own := func(context.Context, *stream.Assignment) {}
	for _, cfg := range []stream.CoordinatorConfig{{Numbers: 1, Own: own}, {Name: "n", Own: own}, {Name: "n", Numbers: 1}, {Name: "\xff", Numbers: 1, Own: own}} {
		if _, err := stream.NewCoordinator(nil, cfg); !errors.Is(err, stream.ErrInvalid) {
			t.Errorf("%+v: %v, want ErrInvalid", cfg, err)
		}
	}
}

// TestCoordinator_LostLease ends, in PostgreSQL, the leases of members that believe
// to have them: they stop and join again.
func TestCoordinator_LostLease(t *testing.T) {
	t.Parallel()
	db := setup(t)
	var mu sync.Mutex
	var tokens, lost []int64
	own := func(ctx context.Context, o *stream.Assignment) {
		mu.Lock()
		tokens = append(tokens, o.Token)
		mu.Unlock()
		select {
		case <-o.Revoked():
		case <-ctx.Done():
			mu.Lock()
			lost = append(lost, o.Token)
			mu.Unlock()
		}
	}
	joinShare(t, db.Pool, stream.CoordinatorConfig{Name: "things", Numbers: 3, Own: own, Heartbeat: 40 * time.Millisecond})
	count := func() (int, int) { mu.Lock(); defer mu.Unlock(); return len(tokens), len(lost) }
	for round := range 2 {
		testkit.Eventually(t, "all numbers", func() bool { owned, _ := count(); return owned == 3*(round+1) })
		endLeases(t, db, 0, 1)
		testkit.Eventually(t, "the loss", func() bool { _, lost := count(); return lost == 3*(round+1) })
	}
	testkit.Eventually(t, "all numbers again", func() bool { owned, _ := count(); return owned == 9 })
	mu.Lock()
	defer mu.Unlock()
	slices.Sort(tokens)
	if len(slices.Compact(tokens)) != 9 {
		t.Errorf("ownerships %v are not all different", tokens)
	}
}

// TestCoordinator_LongWriter: a slow writer that holds ownerships delays changes of
// owners, but no member loses its lease.
func TestCoordinator_LongWriter(t *testing.T) {
	t.Parallel()
	db := setup(t)
	owned := make(chan *stream.Assignment, 2)
	cfg := stream.CoordinatorConfig{Name: "two", Numbers: 2, Heartbeat: 40 * time.Millisecond, Own: func(ctx context.Context, o *stream.Assignment) {
		owned <- o
		select {
		case <-o.Revoked():
		case <-ctx.Done():
			t.Errorf("%d was lost", o.Number)
		}
	}}
	joinShare(t, db.Pool, cfg)
	o := <-owned
	tx := begin(t, db.Pool, "read committed")
	exec(t, tx, `SELECT tidewire.hold_ownerships(ARRAY[$1::bigint])`, o.Token)
	until := func() (at time.Time) {
		must(t, db.Pool.QueryRow(t.Context(), `SELECT max(until) FROM tidewire.share_member`).Scan(&at))
		return at
	}
	for range 3 {
		before := until()
		testkit.Eventually(t, "a heartbeat", func() bool { return until().After(before) })
	}
	if !o.Valid() {
		t.Error("the lease is lost")
	}
	commitTx(t, tx)
	cfg.Own = newOwners(t, 2).own
	joinShare(t, db.Pool, cfg)
	awaitShares(t, db, "two", "[1 1]")
}

// TestCoordinator_WritesWhileOwned: rows written under hold_ownerships are committed
// before the next owner begins, or not at all.
func TestCoordinator_WritesWhileOwned(t *testing.T) {
	t.Parallel()
	db := setup(t)
	owned := make(chan *stream.Assignment, 1)
	joinShare(t, db.Pool, stream.CoordinatorConfig{Name: "thing", Numbers: 1, Own: func(_ context.Context, o *stream.Assignment) {
		owned <- o
		<-o.Revoked()
	}, Lease: time.Hour, Heartbeat: 10 * time.Minute}) // sends no heartbeats
	o := <-owned
	tx := begin(t, db.Pool, "read committed")
	var lasting []int64
	hold := func() []int64 {
		must(t, tx.QueryRow(t.Context(), `SELECT tidewire.hold_ownerships(ARRAY[$1::bigint])`, o.Token).Scan(&lasting))
		return lasting
	}
	if len(hold()) != 1 {
		t.Error("the owner may not write")
	}
	exec(t, db.Pool, `UPDATE tidewire.share_member SET until = clock_timestamp()`)
	other := newOwners(t, 1)
	joinShare(t, db.Pool, stream.CoordinatorConfig{Name: "thing", Numbers: 1, Own: other.own, Heartbeat: 40 * time.Millisecond})
	testkit.Eventually(t, "the next one to wait for the transaction", func() bool {
		return value[int](t, db.Pool, `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND classid = 1953064038 AND NOT granted`) > 0
	})
	if other.now[0].Load() != 0 {
		t.Error("there is another owner while the first one writes")
	}
	commitTx(t, tx)
	testkit.Eventually(t, "the next owner", func() bool { return other.now[0].Load() != 0 })
	tx = begin(t, db.Pool, "read committed")
	if len(hold()) != 0 {
		t.Error("one that owns no more may write")
	}
}

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
	notShort(t)
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
		must(t, db.Pool.QueryRow(t.Context(), `SELECT until FROM tidewire.share_member`).Scan(&at))
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
