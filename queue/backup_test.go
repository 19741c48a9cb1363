package queue_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/migrate"
	"github.com/tidewire/tidewire/queue"
)

// run runs one of PostgreSQL's programs, and skips the test if the machine has
// none that fits the server.
func run(t *testing.T, name string, args ...string) {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		t.Skip(err)
	}
	cmd := exec.CommandContext(t.Context(), name, args...)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Run(); err != nil {
		if strings.Contains(said.String(), "server version mismatch") {
			t.Skip(said.String())
		}
		t.Fatalf("%s: %v\n%s", name, err, said.String())
	}
}

// keys returns the keys of a map.
func keys[V any](m map[string]V) map[string]bool {
	all := make(map[string]bool, len(m))
	for key := range m {
		all[key] = true
	}
	return all
}

// TestBackup_BesideRotations takes a backup that has to wait for another
// transaction's lock, with an older snapshot, while the journal is compacted
// repeatedly. The restored queue continues from the snapshot.
func TestBackup_BesideRotations(t *testing.T) {
	t.Parallel()
	db := pgtest.Open(t)
	run(t, "pg_dump", "--schema-only", "--file="+os.DevNull, "--dbname="+db.URL) // is there one for this server?
	// Made first, so that the backup locks it before the journals.
	if _, err := db.Pool.Exec(t.Context(), `CREATE TABLE application (id int)`); err != nil {
		t.Fatal(err)
	}
	if _, err := migrate.Up(t.Context(), db.Pool); err != nil {
		t.Fatal(err)
	}
	q, err := queue.Ensure(t.Context(), db.Pool, "jobs", queue.Options{MaxAttempts: 1000})
	if err != nil {
		t.Fatal(err)
	}
	c := newChecker()
	holder, _ := start(t, q, queue.NodeConfig{RotateRows: 20})
	enqueue(t, holder, "held 1", "held 2", "held 3")
	receive(t, holder.Consume(queue.ConsumerOptions{Credits: 3, Visibility: time.Hour}), 3)

	var load []*shard
	for seed := range uint64(2) {
		load = append(load, join(t, db.URL, seed, c, faulty))
		t.Cleanup(load[seed].leave)
	}
	feedAs(t, db.URL, "before ", 200, 0, c)
	eventually(t, "much is acknowledged", func() bool { return len(c.snapshot().acked) > 150 })
	before := c.snapshot()

	ddl, err := db.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ddl.Exec(t.Context(), `ALTER TABLE application ADD COLUMN name text`); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "dump")
	var dumping sync.WaitGroup
	dumping.Go(func() { run(t, "pg_dump", "--format=custom", "--file="+file, "--dbname="+db.URL) })
	eventually(t, "the backup waits for the lock, or cannot be made", func() bool {
		return t.Skipped() || t.Failed() || count(t, db.Pool, `SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND application_name = 'pg_dump' AND wait_event_type = 'Lock'`) > 0
	})
	feedAs(t, db.URL, "during ", 400, 0, c) // some ten rotations
	if err := ddl.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	dumping.Wait()
	if t.Skipped() || t.Failed() {
		return
	}
	for _, m := range load {
		m.leave()
	}
	restored := restore(t, file)
	wantRestored(t, restored, before, c.snapshot())
}

// ledger is what a checker knew at a time.
type ledger struct{ enqueued, acked, maybe map[string]bool }

func (c *checker) snapshot() ledger {
	c.mu.Lock()
	defer c.mu.Unlock()
	return ledger{enqueued: keys(c.enqueued), acked: keys(c.acked), maybe: keys(c.asked)}
}

// restore puts a backup into another database.
func restore(t *testing.T, file string) *pgxpool.Pool {
	t.Helper()
	db := pgtest.Open(t)
	run(t, "pg_restore", "--exit-on-error", "--dbname="+db.URL, file)
	return db.Pool
}

// wantRestored consumes a restored queue until it is empty: messages that were
// acknowledged before the backup began are not delivered, and those that never
// were are.
func wantRestored(t *testing.T, pool *pgxpool.Pool, before, after ledger) {
	t.Helper()
	q, err := queue.Lookup(t.Context(), pool, "jobs")
	if err != nil {
		t.Fatal(err)
	}
	n, _ := start(t, q, queue.NodeConfig{})
	enqueue(t, n, "after the restore")
	got := make(map[string]bool)
	ctx, cancel := context.WithCancel(t.Context())
	var consuming sync.WaitGroup
	consuming.Go(func() {
		c := n.Consume(queue.ConsumerOptions{})
		for {
			ds, err := c.Receive(ctx)
			if err != nil {
				return
			}
			for _, d := range ds {
				got[string(d.Payload)] = true
			}
			mustAck(t, ds...)
		}
	})
	wantDone(t, q)
	cancel()
	consuming.Wait()
	for text := range before.acked {
		if got[text] {
			t.Errorf("%q was acknowledged before the backup began, and came again", text)
		}
	}
	for text := range before.enqueued {
		if !got[text] && !after.maybe[text] {
			t.Errorf("%q was lost", text)
		}
	}
	for _, text := range []string{"held 1", "held 2", "held 3", "after the restore"} {
		if !got[text] {
			t.Errorf("%q was lost", text)
		}
	}
	t.Logf("%d messages before the backup, %d acknowledged, %d restored", len(before.enqueued), len(before.acked), len(got))
}
