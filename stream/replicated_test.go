package stream_test

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/embedpg"
	"github.com/tidewire/tidewire/internal/pg"
	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/migrate"
	"github.com/tidewire/tidewire/stream"
)

// pair is a primary that waits with each commit for its standby.
type pair struct {
	primary, standby *embedpg.Server
	pool             *pgxpool.Pool // of the primary
}

func startPair(t *testing.T) pair {
	t.Helper()
	p := pair{primary: pgtest.Start(t)}
	pool, err := pg.Open(t.Context(), pg.PoolConfig{URL: p.primary.URL()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	p.pool = pool
	if _, err := migrate.Up(t.Context(), p.pool); err != nil {
		t.Fatal(err)
	}
	p.standby = pgtest.Standby(t, p.primary)
	p.exec(t, `ALTER SYSTEM SET synchronous_standby_names = 'ANY 1 (*)'`)
	p.exec(t, `SELECT pg_reload_conf()`)
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		var waits bool
		if err := p.pool.QueryRow(t.Context(), `SELECT count(*) = 1 FROM pg_stat_replication WHERE sync_state = 'quorum'`).Scan(&waits); err != nil {
			t.Fatal(err)
		}
		if waits {
			return p
		}
		if time.Now().After(deadline) {
			t.Fatal("the standby is not synchronous")
		}
	}
}

func poolOn(t *testing.T, url string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

func (p pair) exec(t *testing.T, sql string) {
	t.Helper()
	if _, err := p.pool.Exec(t.Context(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// freeze stops the process of the standby that receives what is committed, until thaw.
func (p pair) freeze(t *testing.T) (thaw func()) {
	t.Helper()
	var pid int
	standby := poolOn(t, p.standby.URL())
	if err := standby.QueryRow(t.Context(), `SELECT pid FROM pg_stat_wal_receiver`).Scan(&pid); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	thaw = func() { syscall.Kill(pid, syscall.SIGCONT) }
	t.Cleanup(thaw)
	return thaw
}

// waiting is how many commits wait for the standby now, and ends those waits with the query.
func (p pair) waiting(t *testing.T, end string) (n int) {
	t.Helper()
	if err := p.pool.QueryRow(t.Context(), fmt.Sprintf(`SELECT count(%s) FROM pg_stat_activity WHERE wait_event = 'SyncRep'`, end)).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestAnswersWhenReplicated: while the standby gets nothing, nothing is answered as done, whatever ends
// the waits of the commits. When the standby goes on, it is answered, and is on the standby.
func TestAnswersWhenReplicated(t *testing.T) {
	t.Parallel()
	const timeout = 300 * time.Millisecond
	together, alone := stream.AppenderConfig{}, stream.AppenderConfig{Linger: time.Millisecond}
	together.Writer.Timeout, alone.Writer.Timeout = timeout, timeout
	for name, end := range map[string]string{"deadline": `1`, "terminate": `pg_terminate_backend(pid)`, "cancel": `pg_cancel_backend(pid)`} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := startPair(t)
			a, b := ensureOn(t, p.pool, "a"), ensureOn(t, p.pool, "b")
			appendTo, appendAlone := run(t, p.pool, a, together), run(t, p.pool, b, alone)
			position := func(_ int64, err error) error { return err }
			p.answers(t, end, "append", func(ctx context.Context) error { return position(appendTo.Append(ctx, stream.Message{})) })
			p.answers(t, end, "append alone", func(ctx context.Context) error { return position(appendAlone.Append(ctx, stream.Message{})) })
			elsewhere := run(t, p.pool, ensureOn(t, p.pool, "a"), alone)
			both := make(chan error, 2)
			p.answers(t, end, "append as", func(ctx context.Context) error {
				for _, node := range []*stream.Appender{appendTo, elsewhere} {
					go func() {
						_, err := node.AppendAs(ctx, stream.Producer{ID: "p"}, stream.Message{})
						both <- err
					}()
				}
				return <-both
			})
			if err := <-both; err != nil {
				t.Fatal(err)
			}
			if name != "deadline" { // that of a commit is long
				groups, _ := runGroups(t, p.pool, stream.GroupsConfig{})
				group := openGroup(t, groups, a, "g")
				p.answers(t, end, "commit", func(ctx context.Context) error { return position(group.Commit(ctx, 2)) })
			}
			p.promote(t)
			after := poolOn(t, p.standby.URL())
			for name, want := range map[string]int{"a": 2, "b": 1} {
				s, err := stream.Lookup(t.Context(), after, name)
				if err != nil {
					t.Fatal(err)
				}
				if page, err := s.Read(t.Context(), 0, 10); err != nil || len(page) != want {
					t.Errorf("stream %s after the promotion: %d messages, %v, want %d", name, len(page), err, want)
				}
			}
			var offset int64
			if err := after.QueryRow(t.Context(), `SELECT coalesce(sum(committed), 0) FROM tidewire.read_offsets(ARRAY(SELECT id FROM tidewire.stream_group))`).
				Scan(&offset); err != nil || name != "deadline" && offset != 2 {
				t.Errorf("offset after the promotion: %d, %v, want 2", offset, err)
			}
		})
	}
}

// answers does something while the standby is frozen, ends three waits of commits, and wants
// it answered only when the standby goes on.
func (p pair) answers(t *testing.T, end, what string, do func(context.Context) error) {
	t.Helper()
	thaw := p.freeze(t)
	answered := make(chan error, 1)
	go func() { answered <- do(context.WithoutCancel(t.Context())) }()
	for seen := 0; seen < 3; time.Sleep(200 * time.Millisecond) { // waits that were ended, or lasted too long
		seen += p.waiting(t, end)
		select {
		case err := <-answered:
			t.Fatalf("%s: answered, and not replicated: %v", what, err)
		default:
		}
	}
	thaw()
	if err := <-answered; err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// promote kills the primary, and makes the standby one.
func (p pair) promote(t *testing.T) {
	t.Helper()
	if err := p.primary.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := poolOn(t, p.standby.URL()).Exec(t.Context(), `SELECT pg_promote()`); err != nil {
		t.Fatal(err)
	}
}
