package pgtest

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/embedpg"
)

// Pair is a primary and its synchronous standby: each commit waits for the standby.
type Pair struct {
	Primary, Standby *embedpg.Server
	Pool             *pgxpool.Pool // of the primary
}

// WaitsEnd holds the ways to end the wait of a COMMIT for its standby too early. The value is the SQL expression to
// select for each waiting backend. "deadline" ends no wait in the server: the client's own deadline has
// to expire.
var WaitsEnd = map[string]string{"deadline": `1`, "terminate": `pg_terminate_backend(pid)`, "cancel": `pg_cancel_backend(pid)`}

// StartPair starts a pair that ends with the test. open makes a pool on the primary, and migrates the database.
func StartPair(t testing.TB, open func(ctx context.Context, url string) (*pgxpool.Pool, error)) Pair {
	t.Helper()
	p := Pair{Primary: Start(t)}
	pool, err := open(t.Context(), p.Primary.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	p.Pool = pool
	p.Standby = Standby(t, p.Primary)
	for _, sql := range []string{`ALTER SYSTEM SET synchronous_standby_names = 'ANY 1 (*)'`, `SELECT pg_reload_conf()`} {
		if _, err := p.Pool.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		var waits bool
		if err := p.Pool.QueryRow(t.Context(), `SELECT count(*) = 1 FROM pg_stat_replication WHERE sync_state = 'quorum'`).Scan(&waits); err != nil {
			t.Fatal(err)
		}
		if waits {
			// Commits wait only after the checkpointer has read the setting too, which it does before it makes a checkpoint.
			if _, err := p.Pool.Exec(t.Context(), `CHECKPOINT`); err != nil {
				t.Fatal(err)
			}
			return p
		}
		if time.Now().After(deadline) {
			t.Fatal("the standby is not synchronous")
		}
	}
}

// Freeze stops the process of the standby that receives what is committed, until thaw.
func (p Pair) Freeze(t testing.TB) (thaw func()) {
	t.Helper()
	var pid int
	if err := p.onStandby(t).QueryRow(t.Context(), `SELECT pid FROM pg_stat_wal_receiver`).Scan(&pid); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	thaw = func() { syscall.Kill(pid, syscall.SIGCONT) }
	t.Cleanup(thaw)
	return thaw
}

// Waiting returns how many commits wait for the standby now, and ends these waits by end, a value of WaitsEnd.
func (p Pair) Waiting(t testing.TB, end string) (n int) {
	t.Helper()
	if err := p.Pool.QueryRow(t.Context(), fmt.Sprintf(`SELECT count(%s) FROM pg_stat_activity WHERE wait_event = 'SyncRep'`, end)).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// Answers calls do while the standby is frozen, and ends three waits of commits. The test fails
// if do returns before the standby continues, or with an error.
func (p Pair) Answers(t testing.TB, end, what string, do func(context.Context) error) {
	t.Helper()
	thaw := p.Freeze(t)
	answered := make(chan error, 1)
	go func() { answered <- do(context.WithoutCancel(t.Context())) }()
	for seen := 0; seen < 3; time.Sleep(200 * time.Millisecond) { // waits that were ended, or lasted too long
		seen += p.Waiting(t, end)
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

// Promote kills the primary, makes the standby one, and returns a pool of it.
func (p Pair) Promote(t testing.TB) *pgxpool.Pool {
	t.Helper()
	if err := p.Primary.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	pool := p.onStandby(t)
	if _, err := pool.Exec(t.Context(), `SELECT pg_promote()`); err != nil {
		t.Fatal(err)
	}
	return pool
}

func (p Pair) onStandby(t testing.TB) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), p.Standby.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// Unsynchronised makes the standby asynchronous: commits do not wait for it any more.
func (p Pair) Unsynchronised(t testing.TB) {
	t.Helper()
	for _, sql := range []string{`ALTER SYSTEM RESET synchronous_standby_names`, `SELECT pg_reload_conf()`} {
		if _, err := p.Pool.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
}

// CatchUp waits until the standby has replayed everything that is committed now.
func (p Pair) CatchUp(t testing.TB) {
	t.Helper()
	var at string
	if err := p.Pool.QueryRow(t.Context(), `SELECT pg_current_wal_insert_lsn()::text`).Scan(&at); err != nil {
		t.Fatal(err)
	}
	standby := p.onStandby(t)
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		var there bool
		if err := standby.QueryRow(t.Context(), `SELECT pg_last_wal_replay_lsn() >= $1::pg_lsn`, at).Scan(&there); err != nil {
			t.Fatal(err)
		}
		if there {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the standby does not catch up")
		}
	}
}

// Both returns an address with both servers, which connects to the one that accepts writes.
func (p Pair) Both(t testing.TB) string {
	t.Helper()
	hosts, ports := make([]string, 2), make([]string, 2)
	var user, database string
	for i, server := range []*embedpg.Server{p.Primary, p.Standby} {
		cfg, err := pgxpool.ParseConfig(server.URL())
		if err != nil {
			t.Fatal(err)
		}
		hosts[i], ports[i] = cfg.ConnConfig.Host, fmt.Sprint(cfg.ConnConfig.Port)
		user, database = cfg.ConnConfig.User, cfg.ConnConfig.Database
	}
	return fmt.Sprintf("host=%s port=%s user=%s dbname=%s target_session_attrs=read-write", strings.Join(hosts, ","), strings.Join(ports, ","), user, database)
}

// Detach stops the replication to the standby permanently, by dropping its replication slot.
func (p Pair) Detach(t testing.TB) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		var slots int
		for _, sql := range []string{
			`SELECT count(pg_terminate_backend(pid)) FROM pg_stat_replication`,
			`SELECT count(pg_drop_replication_slot(slot_name)) FROM pg_replication_slots WHERE NOT active`,
			`SELECT count(*) FROM pg_replication_slots`,
		} {
			if err := p.Pool.QueryRow(t.Context(), sql).Scan(&slots); err != nil {
				t.Logf("%s: %v", sql, err) // it has become active meanwhile
			}
		}
		if slots == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the standby still receives")
		}
	}
}
