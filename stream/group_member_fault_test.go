package stream_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/internal/testkit"
	"github.com/tidewire/tidewire/stream"
)

// severable opens pools whose connections can all be cut permanently. A nil one
// opens ordinary pools.
type severable struct {
	mu      sync.Mutex
	conns   []net.Conn
	severed bool
}

func (v *severable) pool(t *testing.T, url string) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	if v != nil {
		dial := cfg.ConnConfig.DialFunc
		cfg.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
			v.mu.Lock()
			defer v.mu.Unlock()
			if v.severed {
				return nil, &net.OpError{Op: "dial", Net: network, Err: net.ErrClosed}
			}
			conn, err := dial(ctx, network, addr)
			if err == nil {
				v.conns = append(v.conns, conn)
			}
			return conn, err
		}
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

func (v *severable) sever() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.severed = true
	for _, c := range v.conns {
		c.Close()
	}
}

// delivery is a page delivered to a member, with PostgreSQL's time.
type delivery struct {
	Partition int
	Token     int64
	Member    string
	Positions []int64
}

// deliveries keeps them in a table, through connections that are not cut.
type deliveries struct{ pool *pgxpool.Pool }

func newDeliveries(t *testing.T, db pgtest.DB) deliveries {
	t.Helper()
	exec(t, db.Pool, `CREATE TABLE public.delivery (partition int, token bigint, member text, positions bigint[], at timestamptz DEFAULT clock_timestamp())`)
	return deliveries{pools(t, db.URL, 1)[0]}
}

// handle is the Handle of a member of that name. A message that cannot be recorded
// counts as not delivered.
func (d deliveries) handle(member string) func(context.Context, *stream.Assignment, []stream.Message) error {
	return func(ctx context.Context, o *stream.Assignment, page []stream.Message) error {
		var positions []int64
		for _, m := range page {
			positions = append(positions, m.Position)
		}
		_, err := d.pool.Exec(ctx, `INSERT INTO public.delivery (partition, token, member, positions) VALUES ($1, $2, $3, $4)`,
			o.Number, o.Token, member, positions)
		return err
	}
}

func (d deliveries) all(t *testing.T) []delivery {
	t.Helper()
	rows, err := d.pool.Query(t.Context(), `SELECT partition, token, member, positions FROM public.delivery ORDER BY at`)
	if err != nil {
		t.Fatal(err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[delivery])
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// check wants, in each partition: ownerships that do not overlap; each begins at or
// before the first undelivered message, and continues without gap; together they
// deliver all stored messages.
func (d deliveries) check(t *testing.T, s *stream.Stream) {
	t.Helper()
	stored, token, done, next := make([][]int64, s.Partitions()), make([]int64, s.Partitions()), make([]int, s.Partitions()), make([]int, s.Partitions())
	for i := range stored {
		for _, m := range everything(t, s.Partition(i)) {
			stored[i] = append(stored[i], m.Position)
		}
	}
	for _, page := range d.all(t) {
		p := page.Partition
		if page.Token < token[p] {
			t.Fatalf("partition %d: %s was given something by ownership %d, after ownership %d", p, page.Member, page.Token, token[p])
		}
		if page.Token > token[p] {
			token[p] = page.Token
			next[p] = slices.Index(stored[p], page.Positions[0])
			if next[p] < 0 || next[p] > done[p] {
				t.Fatalf("partition %d: %s begins with %d, and only %d of %v were delivered", p, page.Member, page.Positions[0], done[p], stored[p])
			}
		}
		for _, position := range page.Positions {
			if position != stored[p][next[p]] {
				t.Fatalf("partition %d: %s was given %d, want %d", p, page.Member, position, stored[p][next[p]])
			}
			next[p]++
		}
		done[p] = max(done[p], next[p])
	}
	for p := range stored {
		if done[p] != len(stored[p]) || done[p] == 0 {
			t.Errorf("partition %d: %d of %d delivered", p, done[p], len(stored[p]))
		}
	}
}

// spreadUntil appends to all partitions until over is closed.
func spreadUntil(t *testing.T, a *stream.PartitionedAppender, over <-chan struct{}) {
	for i := 0; ; i++ {
		select {
		case <-over:
			return
		default:
		}
		if _, err := a.Append(t.Context(), stream.Message{Key: fmt.Sprint(i % 100)}); err != nil {
			t.Error(err)
			return
		}
		time.Sleep(time.Millisecond) // pace: some messages between the changes of owners
	}
}

// awaitOwned waits until the members own the wanted numbers of partitions, in the
// order of their names.
func awaitOwned(t *testing.T, db pgtest.DB, s *stream.Stream, want string) {
	t.Helper()
	testkit.Eventually(t, "partitions owned: "+want, func() bool {
		all, err := s.Members(t.Context(), "g")
		var owned []string
		for _, m := range all {
			owned = append(owned, fmt.Sprint(m.Name, len(m.Partitions)))
		}
		slices.Sort(owned)
		return err == nil && strings.Join(owned, " ") == want
	})
}

// awaitProgress waits until every partition was delivered from again.
func (d deliveries) awaitProgress(t *testing.T, s *stream.Stream) {
	t.Helper()
	count := func() (n int64) {
		err := d.pool.QueryRow(t.Context(), `SELECT min(n) FROM (SELECT (SELECT count(*) FROM public.delivery WHERE partition = p) AS n
			FROM generate_series(0, $1::int - 1) AS p) AS counted`, s.Partitions()).Scan(&n)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := count()
	testkit.Eventually(t, "deliveries in all partitions", func() bool { return count() > before+1 })
}

// TestMember_ComeGoAndDie divides six partitions, to which messages are appended
// all the time, among three members; then one is cut off, another one joins, and
// one leaves.
func TestMember_ComeGoAndDie(t *testing.T) {
	t.Parallel()
	notShort(t)
	db, s := ensureParted(t, 6)
	d := newDeliveries(t, db)
	over := make(chan struct{})
	var publishing sync.WaitGroup
	a := runParted(t, pools(t, db.URL, 1)[0], s, stream.PartitionedConfig{})
	publishing.Go(func() { spreadUntil(t, a, over) })
	enter := func(name string, sever *severable) joined {
		return join(t, db.URL, sever, s, stream.MemberConfig{Name: name, Lease: 5 * time.Second, Heartbeat: 100 * time.Millisecond, Handle: d.handle(name)})
	}
	first := enter("a", nil)
	awaitOwned(t, db, s, "a6")
	d.awaitProgress(t, s)
	cut := &severable{}
	enter("b", cut)
	enter("c", nil)
	awaitOwned(t, db, s, "a2 b2 c2")
	d.awaitProgress(t, s)
	cut.sever()
	awaitOwned(t, db, s, "a3 c3")
	d.awaitProgress(t, s)
	enter("d", nil)
	awaitOwned(t, db, s, "a2 c2 d2")
	d.awaitProgress(t, s)
	if err := first.stop(); err != nil {
		t.Error(err)
	}
	awaitOwned(t, db, s, "c3 d3")
	d.awaitProgress(t, s)
	close(over)
	publishing.Wait()
	awaitAllDelivered(t, db, s)
	d.check(t, s)
}

// awaitAllDelivered waits until the group's offsets are at the end.
func awaitAllDelivered(t *testing.T, db pgtest.DB, s *stream.Stream) {
	t.Helper()
	testkit.Eventually(t, "the group to be at the end", func() bool {
		all, err := s.Groups(t.Context())
		return err == nil && len(all) == 1 && all[0].Lag == 0
	})
}

// TestMember_CommitsBeforeItFails: handled messages are not delivered again, also
// when the member ends with an error.
func TestMember_CommitsBeforeItFails(t *testing.T) {
	t.Parallel()
	db, s := ensureParted(t, 1)
	mustAppend(t, run(t, db.Pool, s.Partition(0), stream.AppenderConfig{}), messages("a", "b", "c")...)
	h, stopHub := runHub(t, db.Pool, stream.HubConfig{})
	gs, _ := runGroups(t, db.Pool, stream.GroupsConfig{LaterEvery: time.Hour})
	handled := make(chan int, 10)
	m, err := gs.Join(t.Context(), h, s, "g", stream.MemberConfig{Handle: func(_ context.Context, _ *stream.Assignment, page []stream.Message) error {
		handled <- len(page)
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	over := make(chan error, 1)
	go func() { over <- m.Run(t.Context()) }()
	if n := <-handled; n != 3 {
		t.Errorf("%d messages, want 3", n)
	}
	stopHub()
	if err := <-over; !errors.Is(err, stream.ErrClosed) {
		t.Errorf("Run: %v, want ErrClosed", err)
	}
	wantOffset(t, openGroup(t, gs, s.Partition(0), "g"), 3)
}

// TestMember_ParksWhatIsTooOld: the other partitions continue, and this one
// continues after Seek.
func TestMember_ParksWhatIsTooOld(t *testing.T) {
	t.Parallel()
	db := setup(t)
	s := ensureWith(t, db.Pool, "parted", stream.Options{Keyed: true, Partitions: 2, OwnTables: true})
	a := runParted(t, db.Pool, s, stream.PartitionedConfig{})
	mustAppend(t, a.Partition(0), messages("lost", "lost", "kept")...)
	got := make(chan string, 10)
	gs, _ := runGroups(t, db.Pool, stream.GroupsConfig{})
	g := openGroup(t, gs, s.Partition(0), "g")
	exec(t, db.Pool, fmt.Sprintf(`SELECT setval('tidewire.stream_%d_oldest_seq', 3)`, s.Partition(0).ID()))
	j := join(t, db.URL, nil, s, stream.MemberConfig{Heartbeat: 40 * time.Millisecond, Handle: func(_ context.Context, _ *stream.Assignment, page []stream.Message) error {
		for _, m := range page {
			got <- string(m.Payload)
		}
		return nil
	}})
	for _, want := range []string{"b1", "b2"} {
		mustAppend(t, a.Partition(1), messages(want)...)
		if text := <-got; text != want {
			t.Errorf("delivered %q, want %q", text, want)
		}
	}
	all, err := s.Members(t.Context(), "g")
	if err != nil || len(all) != 1 || len(all[0].Partitions) != 2 {
		t.Errorf("members %v, %v, want one that has both partitions", all, err)
	}
	must(t, g.Seek(t.Context(), 2))
	if text := <-got; text != "kept" {
		t.Errorf("delivered %q, want what was kept", text)
	}
	if err := j.stop(); err != nil {
		t.Error(err)
	}
	wantOffset(t, g, 3)
}
